#include "tests/process/train/resumable_run.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <stdexcept>

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

void add_summary(Json summary, Outcome& outcome) {
  for (auto& epoch : summary["epochs"]) {
    epoch.erase("train_seconds");
    epoch.erase("samples_per_s");
    epoch.erase("val_seconds");
  }
  for (const char* field :
      {"epochs", "best", "steps", "skipped_steps", "test_loss", "test_accuracy", "test_accuracy5",
          "best_test_loss", "best_test_accuracy", "parameters_hash", "stopped_by", "exit"}) {
    outcome[std::string("summary ") + field] = summary[field].dump();
  }
}

}  // namespace

void expect_same(const Outcome& expected, const Outcome& found) {
  for (const auto& [name, value] : expected) {
    const auto place = found.find(name);
    if (place == found.end()) {
      ADD_FAILURE() << name << " is missing";
      continue;
    }
    // Bytes of weights are nothing to print.
    EXPECT_TRUE(place->second == value)
        << name << (name.ends_with("tensors") ? "" : ": " + place->second + ", not " + value);
  }
  EXPECT_EQ(expected.size(), found.size());
}

Command ResumableRun::start(const std::string& more) const {
  return Command(words("train " + flags_ + " --output " + output() + " --resume auto " + more));
}

Ended ResumableRun::complete(const std::string& more) const {
  Ended ended = attempt(more);
  if (ended.code() != 0) throw std::runtime_error("lockstep train failed: " + ended.err);
  return ended;
}

Ended ResumableRun::interrupted(int signal, int victim, std::size_t after_lines) const {
  Command command = start();
  command.wait_until([&] { return lines() >= after_lines; });
  const pid_t process = rank(victim);
  if (process <= 0) {
    ADD_FAILURE() << "the run was over before the signal: " << command.err();
  } else {
    EXPECT_EQ(::kill(process, signal), 0);
  }
  return command.wait();
}

Outcome ResumableRun::outcome() const {
  Outcome outcome;
  for (const char* name : {"model.safetensors", "best.safetensors", "model-ema.safetensors"}) {
    if (fs::exists(file(name))) outcome[name] = contents(file(name));
  }
  add_metrics(file("metrics.jsonl"), outcome);
  add_summary(summary(), outcome);
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
  const std::string text = contents_so_far(file("metrics.jsonl"));
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

pid_t ResumableRun::rank(int number) const {
  for (const pid_t process : processes()) {
    const std::string words = contents_so_far("/proc/" + std::to_string(process) + "/cmdline");
    if (words.find("lockstep-train") == std::string::npos) continue;
    const std::string rank = variable_of(process, "RANK");
    if (rank == std::to_string(number) || (rank.empty() && number == 0)) return process;
  }
  return -1;
}

}  // namespace lockstep::testing
