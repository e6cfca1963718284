#include "tests/process/resumable_run.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

void add_metrics(const std::string& path, Outcome& outcome) {
  std::map<std::string, Json> newest;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    const auto line = Json::parse(text, nullptr, false);
    if (!line.is_object()) continue;  // torn by a kill
    Json& place = newest[line["split"].get<std::string>() + " step " + line["step"].dump()];
    if (place.is_null() || line["restart"] >= place["restart"]) place = line;
  }
  for (const auto& [name, line] : newest) {
    Json kept;
    for (const char* field : {"epoch", "loss", "accuracy", "accuracy5", "lr", "loss_scale"}) {
      if (line.contains(field)) kept[field] = line[field];
    }
    outcome[name] = kept.dump();
  }
}

void add_summary(const std::string& path, Outcome& outcome) {
  Json summary = Json::parse(contents(path));
  for (auto& epoch : summary["epochs"]) {
    epoch.erase("train_seconds");
    epoch.erase("samples_per_s");
  }
  for (const char* field :
       {"epochs",
        "steps",
        "skipped_steps",
        "test_loss",
        "test_accuracy",
        "test_accuracy5",
        "parameters_hash",
        "stopped_by",
        "exit"}) {
    outcome[std::string("summary ") + field] = summary[field].dump();
  }
}

}  // namespace

ResumableRun::ResumableRun(std::vector<std::string> flags) : flags_(std::move(flags)) {}

TrainCommand ResumableRun::start(const std::vector<std::string>& more) const {
  std::vector<std::string> words = flags_;
  words.insert(words.end(), {"--output", output(), "--resume", "auto", "--progress", "none"});
  words.insert(words.end(), more.begin(), more.end());
  return {folder_.path(), words};
}

Outcome ResumableRun::outcome() const {
  Outcome outcome;
  for (const char* name : {"model.safetensors", "best.safetensors", "model-ema.safetensors"}) {
    if (fs::exists(file(name))) outcome[name] = contents(file(name));
  }
  add_metrics(file("metrics.jsonl"), outcome);
  add_summary(file("summary.json"), outcome);
  return outcome;
}

std::vector<std::string> ResumableRun::snapshot_names() const {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(file("snapshots"), none)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::size_t ResumableRun::lines() const {
  const std::string text = contents(file("metrics.jsonl"));
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

pid_t ResumableRun::rank(int number) const {
  for (const pid_t process : processes()) {
    const std::string words = contents("/proc/" + std::to_string(process) + "/cmdline");
    if (words.find("lockstep-train") == std::string::npos) continue;
    const std::string rank = variable_of(process, "RANK");
    if (rank == std::to_string(number) || (rank.empty() && number == 0)) return process;
  }
  return -1;
}

}  // namespace lockstep::testing
