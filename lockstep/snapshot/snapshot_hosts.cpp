#include "lockstep/snapshot/snapshot_hosts.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/snapshot_files.h"
#include "lockstep/snapshot/snapshot_folder.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/snapshot_reader.h"

namespace lockstep {
namespace {

constexpr std::chrono::hours kLongest{24 * 30};

}  // namespace

SnapshotHosts::SnapshotHosts(const ProcessGroup& world, int copies, const std::string& own_host) {
  if (copies == 0) return;
  world_ = world;
  group_ = world.split(0, world.rank());
  group_->set_timeout(kLongest);
  std::set<std::string> hosts;
  int rank = 0;
  for (const std::string& host : all_texts(own_host, *group_)) {
    if (hosts.insert(host).second) leaders_.push_back(rank);
    ++rank;
  }
  keepers_ = leaders_;
  keepers_.resize(std::min(keepers_.size(), static_cast<std::size_t>(copies)));
}

bool SnapshotHosts::leads() const {
  return are_apart() && std::ranges::count(leaders_, group_->rank()) > 0;
}

bool SnapshotHosts::keeps() const {
  return are_apart() && std::ranges::count(keepers_, group_->rank()) > 0;
}

namespace {

namespace fs = std::filesystem;

/// The newest usable snapshot of a host; all empty if there is none.
struct OwnNewest {
  SnapshotChoice choice = {};
  std::string manifest = {}, state = {};  // manifest.json and state.json
  std::string file = {};                  // where state.json is, with the host
  std::string run = {};                   // its id
};

/// The newest snapshot of all hosts.
struct Newest {
  SnapshotManifest manifest;
  int rank = -1;             // the first that has it; -1: there is none
  std::vector<int> lacking;  // the leaders that have it not
};

OwnNewest newest_here(const SnapshotFolder& folder) {
  folder.remove_leftovers();
  OwnNewest own{.choice = folder.newest()};
  if (own.choice.path.empty()) return own;
  own.manifest = to_json(own.choice.manifest);
  own.state = SnapshotReader(own.choice).state();
  own.file = concat("host ", host_name(), ": ", (own.choice.path / kStateFile).string());
  own.run = run_id_in(own.state, own.file);
  if (own.run.empty()) own.run = "without an id";
  return own;
}

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

void spread_newest(const fs::path& run, const SnapshotHosts& hosts,
    const std::function<bool(const std::string& state, const std::string& file)>& is_wanted) {
  const SnapshotFolder folder(run);
  OwnNewest own;
  std::string failures = failures_of(
      [&] {
        if (hosts.leads()) own = newest_here(folder);
      },
      hosts.world());
  if (failures.empty()) {
    check_one_run(own.run, own.choice.path, hosts.world());
    const auto newest = newest_among(all_texts(own.manifest, hosts.world()), hosts.leaders());
    if (newest.rank < 0) return;
    const std::string state = broadcast_text(own.state, newest.rank, hosts.world());
    const std::string file = broadcast_text(own.file, newest.rank, hosts.world());
    if (!is_wanted(state, file) || newest.lacking.empty()) return;
    failures = failures_of([&] { give_and_take(newest, own.choice, folder, hosts.group()); },
        hosts.world(), &hosts.group());
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
      hosts.world());
  if (!failures.empty())
    throw InvalidArgument(
        concat(failures, "; name another --output, or add --overwrite to remove that run"));
}

// What a folder of another run has may be worth more than what this one has: the user decides.
void check_one_run(const std::string& id, const fs::path& folder, const ProcessGroup& world) {
  const auto ids = all_texts(id, world);
  const auto places = all_texts(concat(host_name(), " in ", folder.string()), world);
  std::set<std::string> runs, lines;
  for (std::size_t rank = 0; rank < ids.size(); ++rank) {
    if (ids[rank].empty()) continue;
    runs.insert(ids[rank]);
    lines.insert(concat("run ", ids[rank], ": on host ", places[rank]));
  }
  if (runs.size() < 2) return;
  throw DataError(concat(
      "the hosts have snapshots of different runs, of which nothing was copied or removed; on each "
      "host whose run is not to go on, move the folder away, or name another --output for this "
      "run:\n  ",
      joined({lines.begin(), lines.end()}, "\n  ")));
}

}  // namespace lockstep
