#include "lockstep/train/record/run_directory.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/snapshot/run_lock.h"
#include "lockstep/snapshot/snapshot_folder.h"
#include "lockstep/train/options/run_configuration.h"

namespace lockstep {
namespace {

// In the order in which they are removed: while config.toml is there, the folder is a run's.
constexpr std::array kRunFiles{"summary.json", "model.safetensors", "model-ema.safetensors",
    "best.safetensors", "report.html", "metrics.jsonl", "env.json", "command.txt", "config.toml"};

constexpr const char* kProfile = "profile";
constexpr std::array kProfileFiles{"profile.json", "trace.json"};

void remove_profile(const std::string& path) {
  const OpenDirectory folder = OpenDirectory::open(path);
  if (!folder.has(kProfile)) return;
  const OpenDirectory profile = folder.child(kProfile);
  for (const char* file : kProfileFiles)
    if (profile.has(file)) profile.remove(file);
  if (profile.names().empty()) folder.remove(kProfile);
}

// What a run leaves that is killed while it writes a file: see AtomicFile.
bool is_unfinished(const std::string& name) {
  const auto is_part_of = [&](const char* file) {
    return name.starts_with(concat('.', file, '.'));
  };
  return name.ends_with(".part") && std::ranges::any_of(kRunFiles, is_part_of);
}

bool is_of_no_run(const std::string& name) {
  return name != "logs" && name != kRunLock && name != kLauncherLock && !is_unfinished(name);
}

// Before there are any results: what began them must be known.
std::string described_folder(const TrainOptions& options, const std::vector<std::string>& command,
    const std::string& environment_json, bool replaces) {
  const std::string& path = options.output;
  make_run_directory(path, options.resume, replaces);
  replace_file(path + "/config.toml", config_toml(options));
  replace_file(path + "/command.txt", shell_text(command) + "\n");
  replace_file(path + "/env.json", environment_json + "\n");
  return path;
}

}  // namespace

bool holds_run(const std::string& path) {
  for (const char* name : {"metrics.jsonl", "config.toml", "snapshots"})
    if (std::filesystem::exists(path + "/" + name)) return true;
  return false;
}

bool continues(const std::string& path, const ResumeSettings& resume) {
  if (resume.kind == Resume::kNever) return false;
  if (resume.kind == Resume::kAuto || resume.again) return true;
  std::error_code none;
  const std::filesystem::path run = std::filesystem::weakly_canonical(path, none),
                              from = std::filesystem::weakly_canonical(resume.from, none);
  return from == run || from.parent_path() == run / "snapshots";
}

void check_run_directory(const std::string& path, const ResumeSettings& resume) {
  check(is_utf8(path), "train: --output must be UTF-8, as config.toml and snapshots name it: ",
      printable_path(path));
  if (!std::filesystem::exists(path)) return;
  check(std::filesystem::is_directory(path), "train: --output is not a folder: ", path);
  if (!resume.again) check_has_no_owner(path);  // else rank 0 waits for it
  const bool is_run = holds_run(path);
  if (is_run && (resume.overwrite || continues(path, resume))) return;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    check(!is_of_no_run(name), "train: --output holds files already: ", path, " (",
        printable_path(name), "); name a new or empty folder, or leave --output out",
        is_run ? "; --resume auto continues a run, --overwrite replaces it" : "");
  }
}

OpenDirectory make_logs_folder(const std::string& path) {
  make_folders(path + "/logs");
  return OpenDirectory::open(path).child("logs");
}

void remove_run(const std::string& path) {
  SnapshotFolder(path).clear();
  remove_events(path);
  remove_profile(path);
  const OpenDirectory folder = OpenDirectory::open(path);
  for (const char* file : kRunFiles)
    if (folder.has(file)) folder.remove(file);
  folder.sync();
}

void make_run_directory(const std::string& path, const ResumeSettings& resume, bool replaces) {
  check_run_directory(path, resume);
  if (replaces) remove_run(path);
  make_logs_folder(path);
  const OpenDirectory folder = OpenDirectory::open(path);
  for (const std::string& name : folder.names())
    if (is_unfinished(name)) folder.remove(name);
}

namespace {

namespace fs = std::filesystem;

fs::path weights_file(const std::string& folder, Which which) {
  return fs::path(folder) / (which == Which::kBest ? "best.safetensors" : "model.safetensors");
}

// With what the trainer wrote into the file beside the tensors.
WeightsSource source_in(const std::string& folder, Which which) {
  const fs::path file = weights_file(folder, which);
  std::vector<std::string> facts;
  for (const auto& [name, value] : read_safetensors(file).metadata())
    if (name != "format") facts.push_back(concat(name, " ", value));
  return {.file = file.string(), .which = name_of(which), .remark = joined(facts)};
}

}  // namespace

WeightsSource weights_of_run(const std::string& folder, std::optional<Which> which) {
  for (const Which each : {Which::kBest, Which::kLast})
    if (which.value_or(each) == each && fs::exists(weights_file(folder, each)))
      return source_in(folder, each);
  const std::string missing =
      which ? concat("has no ", weights_file("", *which).string())
            : std::string("has neither best.safetensors nor model.safetensors");
  throw DataError(concat(folder, ": ", missing,
      "; a run writes best.safetensors with its first evaluation and model.safetensors at its end. "
      "Those of a snapshot are ",
      folder, "/snapshots/STEP/model.safetensors; lockstep eval takes them by --weights"));
}

std::string shell_text(const std::vector<std::string>& arguments) {
  const std::string plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
  std::string line;
  for (const auto& argument : arguments) {
    if (!line.empty()) line += ' ';
    if (!argument.empty() && argument.find_first_not_of(plain) == std::string::npos) {
      line += argument;
      continue;
    }
    line += '\'';
    for (const char letter : argument) letter == '\'' ? line += "'\\''" : line += letter;
    line += '\'';
  }
  return line;
}

RunRecorder::RunRecorder(const TrainOptions& options, const std::vector<std::string>& command,
    const std::string& environment_json, bool replaces, std::int64_t steps)
    : MetricsWriter{described_folder(options, command, environment_json, replaces),
          {.tensorboard = options.tensorboard,
              .steps = steps,
              .goes_on = continues(options.output, options.resume)}},
      path_(options.output) {}

void RunRecorder::append_missing(const std::vector<MetricRecord>& records) {
  for (const MetricRecord& record : records)
    if (!had(record.split, record.step)) append(record);
}

void RunRecorder::write_profile(const std::string& profile, const std::string& trace) const {
  make_folders(file(kProfile));
  const OpenDirectory folder = OpenDirectory::open(path_).child(kProfile);
  replace_file(folder.path_of(kProfileFiles[0]), profile + "\n");
  replace_file(folder.path_of(kProfileFiles[1]), trace);
}

}  // namespace lockstep
