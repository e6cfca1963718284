#include "lockstep/train/snapshot/apart/newest_of_hosts.h"

#include <algorithm>
#include <array>
#include <exception>

#include "lockstep/core/error.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/snapshot/snapshot_folder.h"
#include "lockstep/train/snapshot/apart/spread_files.h"
#include "lockstep/train/snapshot/group_values.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The newest snapshot of all hosts.
struct Newest {
  SnapshotManifest manifest;
  int rank = -1;             // the first that has it; -1: there is none
  std::vector<int> lacking;  // the leaders that have it not
};

Newest newest_among(const std::vector<std::string>& manifests, const std::vector<int>& leaders) {
  Newest newest;
  for (const int rank : leaders) {
    const std::string& text = manifests[static_cast<std::size_t>(rank)];
    if (text.empty()) continue;
    auto manifest = parse_manifest(text, concat("rank ", rank));
    if (newest.rank >= 0 && manifest.step <= newest.manifest.step) continue;
    newest.manifest = std::move(manifest);
    newest.rank = rank;
  }
  for (const int rank : leaders)
    if (newest.rank >= 0 && manifests[static_cast<std::size_t>(rank)] !=
                                manifests[static_cast<std::size_t>(newest.rank)])
      newest.lacking.push_back(rank);
  return newest;
}

void send_file(const fs::path& path, ByteSink& sink) {
  InputFile file(path);
  std::array<std::uint8_t, 1 << 16> piece{};
  while (const std::size_t bytes = file.read(piece)) sink.write(std::span(piece.data(), bytes));
}

std::vector<OwnFile> files_of(const SnapshotChoice& choice) {
  std::vector<OwnFile> files;
  for (const SnapshotFile& file : choice.manifest.files)
    files.push_back({.facts = {.file = file},
        .write = [path = choice.path / file.name](ByteSink& sink) { send_file(path, sink); }});
  return files;
}

void give_and_take(const Newest& newest, const SnapshotChoice& choice, const SnapshotFolder& folder,
    const ProcessGroup& group) {
  std::exception_ptr failure;
  std::optional<PendingSnapshot> pending;
  const bool takes = std::ranges::count(newest.lacking, group.rank()) > 0;
  try {
    if (takes) pending.emplace(PendingSnapshot::begin(folder, newest.manifest.step));
  } catch (...) {
    failure = std::current_exception();
  }
  const auto own = group.rank() == newest.rank ? files_of(choice) : std::vector<OwnFile>();
  const auto taken =
      spread_files(group, newest.lacking, pending ? &*pending : nullptr, own, failure);
  if (taken && pending) pending->commit(newest.manifest);  // compares what has come with it
}

}  // namespace

void spread_newest(const fs::path& run, const SnapshotHosts& hosts) {
  const SnapshotFolder folder(run);
  SnapshotChoice choice;
  std::string manifest;
  std::string failures = failures_of(
      [&] {
        if (!hosts.leads()) return;
        folder.remove_leftovers();
        choice = folder.newest();
        if (!choice.path.empty()) manifest = to_json(choice.manifest);
      },
      hosts.group());
  if (failures.empty()) {
    const auto newest = newest_among(all_texts(manifest, hosts.group()), hosts.leaders());
    if (newest.lacking.empty()) return;
    failures =
        failures_of([&] { give_and_take(newest, choice, folder, hosts.group()); }, hosts.group());
  }
  if (!failures.empty())
    throw DataError(concat("the newest snapshot cannot be given to all hosts: ", failures));
}

void check_no_other_run(const fs::path& run, const SnapshotHosts& hosts, bool overwrites) {
  const std::string failures = failures_of(
      [&] {
        if (!hosts.leads() || hosts.group().rank() == 0) return;
        const SnapshotFolder folder(run);
        if (overwrites) return folder.clear();
        check(folder.newest().path.empty(), folder.path().string(), " holds snapshots of a run");
      },
      hosts.group());
  if (!failures.empty())
    throw InvalidArgument(
        concat(failures, "; name another --output, or add --overwrite to remove that run"));
}

}  // namespace lockstep
