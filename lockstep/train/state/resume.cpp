#include "lockstep/train/state/resume.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/snapshot_folder.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A path may end in a slash.
fs::path named_path(const std::string& text) {
  const fs::path path = fs::path(text).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

std::vector<std::string> remarks_of(const SnapshotChoice& choice) {
  std::vector<std::string> remarks;
  for (const SnapshotRefusal& refusal : choice.refused)
    remarks.push_back(concat("snapshot ", refusal.name, " cannot be used: ", refusal.reason));
  return remarks;
}

SnapshotChoice named_snapshot(const std::string& from, const ProcessGroup& world) {
  const fs::path path = named_path(from);
  if (step_of(path.filename().string()) && fs::is_directory(path))
    return verified_snapshot(path, world);
  if (!fs::is_directory(path))
    throw DataError(concat("train: --resume names no folder of a run or snapshot: ", from));
  SnapshotChoice choice = newest_snapshot(path, world);
  if (!choice.path.empty()) return choice;
  std::string reasons;
  for (const std::string& remark : remarks_of(choice)) reasons += "; " + remark;
  throw DataError(
      concat("train: --resume: there is no complete snapshot in ", path.string(), reasons));
}

SnapshotChoice choose(const TrainOptions& options, const ProcessGroup& world) {
  const ResumeSettings& resume = options.resume;
  if (resume.kind == Resume::kNever) return {};
  if (resume.kind == Resume::kFrom && !resume.again) return named_snapshot(resume.from, world);
  SnapshotChoice own = newest_snapshot(options.output, world);
  if (own.path.empty() && resume.kind == Resume::kFrom) return named_snapshot(resume.from, world);
  return own;
}

std::vector<std::string> differences_from(
    const RunState& state, const TrainOptions& options, const DataIdentity& data) {
  const DataIdentity& before = state.setup.data;
  std::vector<std::string> all = differences(state.setup.configuration, run_configuration(options));
  const auto compare = [&all](const char* what, const auto& then, const auto& now) {
    if (then != now) all.push_back(concat(what, ": the snapshot has ", then, ", now ", now));
  };
  compare("data", before.name, data.name);
  compare("training samples", before.samples, data.samples);
  compare("classes", before.classes, data.classes);
  compare("fingerprint of the samples", before.fingerprint, data.fingerprint);
  return all;
}

void check_same(const RunState& state, const std::vector<std::string>& differences, Resume kind) {
  if (differences.empty()) return;
  const char* advice = kind == Resume::kAuto
                           ? "; name another --output, or add --overwrite to begin this one anew"
                           : "";
  throw DataError(concat("train: the snapshot of step ", state.step, " is of another training",
      advice, ":\n  ", joined(differences, "\n  ")));
}

// What a run holds that must not be lost for a fresh start of this one, and how that is seen;
// empty, if nothing.
std::vector<std::string> precious_in(
    const fs::path& run, const TrainOptions& options, bool has_unusable_snapshots) {
  for (const char* weights : {"model.safetensors", "model-ema.safetensors"})
    if (fs::exists(run / weights)) return {concat("finished weights (", weights, ")")};
  if (has_unusable_snapshots) return {"snapshots that cannot be used"};
  // Where there are snapshots, that of the best epoch follows its weights: a run that was killed
  // between the first two has no more to lose than one that was killed before.
  const bool is_unsaved = options.snapshots.unit == SnapshotUnit::kNever;
  if (is_unsaved && fs::exists(run / "best.safetensors"))
    return {"the weights of its best epoch (best.safetensors)"};
  const fs::path file = run / "config.toml";
  if (!fs::exists(file)) return {"a run without its config.toml"};
  const auto before = parse_configuration(text_in(file), file.string());
  auto lines = differences(before, begun_configuration(options), "config.toml");
  if (!lines.empty()) lines.insert(lines.begin(), "another training");
  return lines;
}

// Without a snapshot the run begins anew over what is there.
void check_nothing_is_lost(const TrainOptions& options, const std::vector<std::string>& remarks) {
  if (!holds_run(options.output)) return;
  std::vector<std::string> lines = precious_in(options.output, options, !remarks.empty());
  if (lines.empty()) return;
  lines.front() = concat("train: --resume auto finds no complete snapshot in ", options.output,
      ", which holds ", lines.front(),
      "; name another --output, or add --overwrite to remove that run and start anew");
  lines.insert(lines.end(), remarks.begin(), remarks.end());
  throw InvalidArgument(joined(lines, "\n  "));
}

bool is_of_output(const fs::path& snapshot, const TrainOptions& options) {
  const fs::path run = snapshot.parent_path().parent_path();
  std::error_code none;
  return fs::exists(options.output, none) && fs::equivalent(run, options.output, none);
}

// Within one run a lower step would come after a higher one, and the next resume take the higher.
void check_newest(const TrainOptions& options, const SnapshotChoice& choice) {
  if (!is_of_output(choice.path, options)) return;
  for (const auto& entry : fs::directory_iterator(choice.path.parent_path())) {
    const auto step = step_of(entry.path().filename().string());
    const bool is_later = step && *step > choice.manifest.step;
    const bool is_refused = std::ranges::any_of(choice.refused,
        [&](const auto& refusal) { return refusal.name == entry.path().filename(); });
    check(!is_later || is_refused, "train: --resume: this run has a later snapshot, ",
        entry.path().filename().string(),
        "; go on from that by --resume auto, or name another --output");
  }
}

// Ranks that were started again have their own run there.
bool overwrites(const ResumeSettings& resume) { return resume.overwrite && !resume.again; }

// Compares it before any host gets it.
void look_on_all_hosts(const TrainOptions& options, const DataIdentity& data,
    const ProcessGroup& world, const SnapshotHosts& hosts) {
  const ResumeSettings& resume = options.resume;
  if (!hosts.are_apart() && !overwrites(resume))  // they are said to share the folder
    check_one_run(run_id_of_folder(options.output), options.output, world);
  if (!hosts.are_apart()) return;
  if (resume.kind != Resume::kAuto && !resume.again)
    return check_no_other_run(options.output, hosts, resume.overwrite);
  spread_newest(options.output, hosts, [&](const std::string& state, const std::string& file) {
    const RunState found = parse_run_state(state, file);
    const auto other = differences_from(found, options, data);
    if (!other.empty() && overwrites(resume)) return false;
    check_same(found, other, resume.kind);
    return true;
  });
}

StartingPoint starting_point(
    const TrainOptions& options, const DataIdentity& data, const ProcessGroup& world) {
  const ResumeSettings& resume = options.resume;
  StartingPoint start;
  const SnapshotChoice choice = choose(options, world);
  start.remarks = remarks_of(choice);
  if (choice.path.empty()) {
    start.replaces = overwrites(resume);
    if (resume.kind == Resume::kNever) return start;
    if (!overwrites(resume) && !resume.again)
      do_on_root([&] { check_nothing_is_lost(options, start.remarks); }, world);
    const auto text = concat("no complete snapshot in ", options.output, ": training starts anew");
    if (holds_run(options.output))
      start.remarks.push_back(text);
    else
      start.announcement = text;
    return start;
  }
  check_newest(options, choice);
  start.snapshot = std::make_shared<const SnapshotReader>(choice);
  start.state = parse_run_state(
      start.snapshot->state(), (choice.path / kStateFile).string(), choice.manifest.step);
  const auto other = differences_from(start.state, options, data);
  if (!other.empty() && overwrites(resume) && resume.kind == Resume::kAuto) {
    StartingPoint anew;
    anew.replaces = true;
    anew.remarks.push_back(concat("the run in ", options.output,
        " is of another training and gives way to this one (--overwrite)"));
    return anew;
  }
  check_same(start.state, other, resume.kind);
  start.replaces = overwrites(resume) && !continues(options.output, resume);
  start.announcement =
      concat("going on from ", choice.path.string(), ", after step ", start.state.step);
  return start;
}

}  // namespace

StartingPoint find_starting_point(const TrainOptions& options, const DataIdentity& data,
    const ProcessGroup& world, const SnapshotHosts& hosts) {
  look_on_all_hosts(options, data, world, hosts);
  StartingPoint start = starting_point(options, data, world);
  if (start.replaces && hosts.are_apart()) check_no_other_run(options.output, hosts, true);
  // A branch is a run of its own.
  const bool goes_on = start.snapshot && is_of_output(start.snapshot->path(), options);
  const std::string id = goes_on ? start.state.setup.run : new_run_id();
  start.state.setup.run = broadcast_text(id, 0, world);
  return start;
}

}  // namespace lockstep
