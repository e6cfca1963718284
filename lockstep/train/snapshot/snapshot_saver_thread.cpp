// What a save does in its thread: files, lists, the commit.

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/formats/snapshot/snapshot_names.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/train/snapshot/snapshot_saver.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{20};

// What a rank has written stands here until rank 0 has read it; it is not a file of a snapshot.
std::string list_name(int rank) { return concat("written-", rank, ".json"); }

}  // namespace

void SnapshotSaver::work() {
  if (options_.hosts.are_apart()) return work_apart();
  open_folder();
  if (is_given_up_) return;
  write_files();
  if (is_given_up_) return;
  if (world_.rank() != 0) {
    pending_->write(list_name(world_.rank()), to_json(written_));
    return;
  }
  while (!is_given_up_) {
    if (auto files = files_of_all()) return commit(std::move(*files));
    std::this_thread::sleep_for(kBetweenTries);
  }
}

// What fails here must not keep the others waiting.
void SnapshotSaver::work_apart() {
  const SnapshotHosts& hosts = options_.hosts;
  std::exception_ptr failure;
  std::vector<OwnFile> own;
  try {
    if (hosts.keeps())
      pending_.emplace(PendingSnapshot::begin(folder_, aside_.filename().string()));
    own = own_files();
  } catch (...) {
    failure = std::current_exception();
  }
  auto files =
      spread_files(hosts.group(), hosts.keepers(), pending_ ? &*pending_ : nullptr, own, failure);
  if (files && hosts.keeps() && !is_given_up_) commit(std::move(*files));
}

std::vector<OwnFile> SnapshotSaver::own_files() {
  using Lists = std::vector<std::vector<TensorEntry>>;
  const auto lists = std::make_shared<const Lists>(checked_lists());
  std::vector<OwnFile> own;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    own.push_back({.facts = written_file({.name = names_[i], .sha256 = {}}, (*lists)[i]),
        .write = [this, lists, i](
                     ByteSink& sink) { write_safetensors(sink, (*lists)[i], metadata_[i]); }});
  }
  if (!state_.empty())
    own.push_back({.facts = {.file = {.name = kStateFile, .sha256 = {}}},
        .write = [this](ByteSink& sink) { sink.write(std::string_view(state_)); }});
  return own;
}

// Rank 0 makes it, the others wait until they see it; not without end, as rank 0 may have gone.
void SnapshotSaver::open_folder() {
  if (world_.rank() == 0) {
    pending_.emplace(PendingSnapshot::begin(folder_, aside_.filename().string()));
    return;
  }
  const Stopwatch watch;
  const auto most = static_cast<double>(options_.patience.count());
  while (!is_given_up_ && !is_there_now(aside_)) {
    if (watch.seconds() > most)
      throw std::runtime_error(
          concat(aside_.string(), ": rank 0 has not made it within ", most, " s"));
    std::this_thread::sleep_for(kBetweenTries);
  }
  if (!is_given_up_) pending_.emplace(PendingSnapshot::join(aside_));
}

// Those of the files; what follows them tells whether the run has diverged.
std::vector<std::vector<TensorEntry>> SnapshotSaver::checked_lists() {
  auto lists = copy_.row_major();
  lists.resize(names_.size() + 1);
  for (const TensorEntry& overflow : lists.back())
    if (overflow.bytes.front() != 0) throw DivergedError(divergence_);
  return lists;
}

void SnapshotSaver::write_files() {
  const auto lists = checked_lists();
  for (std::size_t i = 0; i < names_.size() && !is_given_up_; ++i) {
    SnapshotFile file = pending_->write_tensors(names_[i], lists[i], metadata_[i]);
    written_.push_back(written_file(std::move(file), lists[i]));
  }
  if (!state_.empty()) written_.push_back({.file = pending_->write(kStateFile, state_)});
}

// Nothing until the list of each rank is there, and whole.
std::optional<std::vector<WrittenFile>> SnapshotSaver::files_of_all() const {
  std::vector<WrittenFile> files = written_;
  for (int rank = 1; rank < world_.size(); ++rank) {
    const auto path = pending_->path() / list_name(rank);
    const auto list = is_there_now(path) ? read_written_files(path) : std::nullopt;
    if (!list) return std::nullopt;
    files.insert(files.end(), list->begin(), list->end());
  }
  for (int rank = 1; rank < world_.size(); ++rank)
    std::filesystem::remove(pending_->path() / list_name(rank));
  return files;
}

void SnapshotSaver::commit(std::vector<WrittenFile> files) {
  commit_files(*pending_, std::move(files));
  is_committed_ = true;
  try {
    set_best_and_prune();
  } catch (const std::exception& error) {
    note_ = concat(
        "the snapshot of step ", step_, " is complete, but older ones may be left: ", error.what());
  }
}

void SnapshotSaver::set_best_and_prune() {
  if (best_) folder_.set_best(step_);
  folder_.prune(options_.keep, step_);
}

}  // namespace lockstep
