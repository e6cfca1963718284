#include "lockstep/snapshot/snapshot_folder.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/state_fields.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestPointer = 64;

/// Lists the steps of which there is a folder, highest first.
std::vector<std::int64_t> steps_in(const OpenDirectory& snapshots) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : snapshots.names()) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

/// Reads the file `best`: the step, or -1 if there is no such file.
std::int64_t best_step(const OpenDirectory& snapshots) {
  if (!snapshots.has(kBest)) return -1;
  std::string name = short_text(snapshots, kBest, kLongestPointer);
  const bool is_line = name.ends_with('\n');
  if (is_line) name.pop_back();
  const auto step = step_of(name);
  if (!is_line || !step) {
    throw DataError(snapshots.path_of(kBest) + ": does not hold the name of a snapshot; remove it");
  }
  return *step;
}

bool is_whole(const OpenDirectory& snapshots, std::int64_t step) {
  try {
    return verify_sizes(snapshots.child(snapshot_name(step))).step == step;
  } catch (const DataError&) {
    return false;
  } catch (const std::system_error&) {
    return false;  // an unreadable file is of no use, and must not stop the pruning of others
  }
}

/// Renames first: half a snapshot must never have the name of one.
void remove_snapshot(const OpenDirectory& snapshots, std::int64_t step) {
  const std::string name = snapshot_name(step);
  const std::string aside = aside_name(step);
  const int folder = snapshots.descriptor();
  if (::renameat(folder, name.c_str(), folder, aside.c_str()) != 0) {
    throw_errno("rename before removing", snapshots.path_of(name));
  }
  snapshots.sync();
  snapshots.remove(aside);
}

}  // namespace

fs::path SnapshotFolder::path() const { return run_ / kSnapshots; }

bool SnapshotFolder::is_there() const {
  return fs::exists(run_) && OpenDirectory::open(run_).has(kSnapshots);
}

OpenDirectory SnapshotFolder::open() const { return OpenDirectory::open(run_).child(kSnapshots); }

SnapshotChoice SnapshotFolder::newest() const {
  SnapshotChoice choice;
  if (!is_there()) return choice;
  const OpenDirectory snapshots = open();
  for (const std::int64_t step : steps_in(snapshots)) {
    const std::string name = snapshot_name(step);
    std::string reason;
    try {
      choice.manifest = verify_files(snapshots.child(name), ReadFrom::kAnywhere);
      if (choice.manifest.step == step) {
        choice.path = path() / name;
        return choice;
      }
      reason = concat("its manifest is that of step ", choice.manifest.step);
    } catch (const DataError& error) {
      reason = error.what();
    } catch (const std::system_error& error) {
      reason = error.what();
    }
    choice.refused.push_back({name, reason});
  }
  choice.manifest = {};
  return choice;
}

fs::path SnapshotFolder::best() const {
  if (!is_there()) return {};
  const OpenDirectory snapshots = open();
  const std::int64_t step = best_step(snapshots);
  if (step < 0) return {};
  const std::string name = snapshot_name(step);
  if (!snapshots.has(name)) {
    throw DataError(concat(snapshots.path_of(kBest), ": names ", name, ", which is not there"));
  }
  return path() / name;
}

void SnapshotFolder::set_best(std::int64_t step) const {
  const OpenDirectory snapshots = open();
  const std::string name = snapshot_name(step);
  check(snapshots.has(name), "the best snapshot must be there: ", snapshots.path_of(name));
  AtomicFile file(snapshots, kBest);
  file.write(name + '\n');
  file.commit();
}

void SnapshotFolder::prune(int keep, std::int64_t step) const {
  check(keep >= 1, "at least one snapshot must be kept, not ", keep);
  const OpenDirectory snapshots = open();
  const std::int64_t best = best_step(snapshots);
  int whole = 1;
  for (const std::int64_t other : steps_in(snapshots)) {
    if (other >= step || other == best) continue;
    if (whole >= keep) {
      remove_snapshot(snapshots, other);
    } else if (is_whole(snapshots, other)) {
      ++whole;
    }
  }
}

void SnapshotFolder::remove_leftovers() const {
  if (!is_there()) return;
  const OpenDirectory snapshots = open();
  for (const std::string& name : snapshots.names()) {
    if (is_leftover(name)) snapshots.remove(name);
  }
}

void SnapshotFolder::clear() const {
  if (!is_there()) return;
  const OpenDirectory snapshots = open();
  for (const std::int64_t step : steps_in(snapshots)) remove_snapshot(snapshots, step);
  for (const std::string& name : snapshots.names())
    if (is_leftover(name) || name == kLatest || name == kBest) snapshots.remove(name);
  if (snapshots.names().empty()) OpenDirectory::open(run_).remove(kSnapshots);
}

std::string new_run_id() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

std::string run_id_in(std::string_view json, const std::string& file) {
  const nlohmann::json object = parse_strict_json(json, file, kStateLimits);
  return JsonFields(object, file).text_if("run").value_or("");
}

std::string run_id_of_folder(const std::filesystem::path& output) {
  for (const auto& snapshot : snapshots_newest_first(output)) {
    const auto file = snapshot / kStateFile;
    try {
      return run_id_in(text_in(file), file);
    } catch (const DataError&) {  // it is cut short
    }
  }
  return "";
}

}  // namespace lockstep
