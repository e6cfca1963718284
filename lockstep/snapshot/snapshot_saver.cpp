#include "lockstep/snapshot/snapshot_saver.h"

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};
constexpr int kDiverged = std::numeric_limits<int>::max();  // the maximum over ranks knows it

std::string text_of(const std::exception_ptr& failure, int& code) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::system_error& error) {
    code = error.code().value();
    return error.what();
  } catch (const DivergedError& error) {
    code = kDiverged;
    return error.what();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown exception";
  }
}

nn::NamedTensors listed(const std::vector<torch::Tensor>& tensors) {
  nn::NamedTensors list("Tensor");
  for (const torch::Tensor& tensor : tensors) list.insert(concat(list.size()), tensor);
  return list;
}

// A std::system_error says the reason behind the text by itself.
std::string without_reason(std::string text, const std::error_code& code) {
  const std::string reason = ": " + code.message();
  if (text.ends_with(reason)) text.resize(text.size() - reason.size());
  return text;
}

}  // namespace

SnapshotSaver::SnapshotSaver(SnapshotSaverOptions options, ProcessGroup world)
    : options_(std::move(options)),
      world_(std::move(world)),
      folder_(options_.run),
      snapshots_(std::filesystem::absolute(folder_.path())),
      exceptions_(std::uncaught_exceptions()) {
  check(options_.keep >= 1, "SnapshotSaver: at least 1 snapshot must be kept: ", options_.keep);
}

SnapshotSaver::~SnapshotSaver() {
  if (!in_flight_) return;
  const bool is_unwinding = std::uncaught_exceptions() > exceptions_;
  if (world_.size() > 1 && is_unwinding) stop_waiting();
  thread_.wait_for(options_.patience);
  if (world_.size() > 1 && (world_.rank() == 0 || options_.hosts.are_apart())) stop_waiting();
  thread_.wait();
  say_how_it_ended();
}

// For ranks that may be gone.
void SnapshotSaver::stop_waiting() {
  is_given_up_ = true;
  const SnapshotHosts& hosts = options_.hosts;
  if (hosts.are_apart() && thread_.is_busy())
    hosts.group().abort(concat("rank ", world_.rank(), " waits no longer for files of a snapshot"));
}

// Nobody will ask any more.
void SnapshotSaver::say_how_it_ended() {
  if (const auto failure = thread_.take_failure()) note_failure(failure);
  if (failure_) {
    note_ = concat("the snapshot of step ", step_, " could not be written: ", failure_->text);
  } else if (world_.rank() == 0 && !is_committed_) {
    note_ = concat("the snapshot of step ", step_, " is given up: not all ranks wrote their part");
  }
  if (!note_.empty()) std::cerr << "warning: " << note_ << std::endl;
}

void SnapshotSaver::save(std::int64_t step, const SnapshotPart& part) {
  finish();
  const Stopwatch watch;
  step_ = step;
  best_ = part.best;
  failure_.reset();
  note_.clear();
  is_given_up_ = false;
  is_committed_ = false;
  in_flight_ = true;
  agree_on_folder();
  copy(part);
  if (!failure_) begin_thread();
  stall_seconds_ = watch.seconds();
}

// What keeps it from beginning must reach the other ranks, which wait for its files.
void SnapshotSaver::begin_thread() {
  try {
    thread_.start([this] { work(); });
  } catch (const std::exception&) {
    note_failure(std::current_exception());
  }
}

// Only its name: making it may wait for the disk, and is the thread's.
void SnapshotSaver::agree_on_folder() {
  const auto path = snapshots_ / aside_name(step_);
  aside_ = broadcast_text(world_.rank() == 0 ? path.string() : "", 0, world_);
}

void SnapshotSaver::copy(const SnapshotPart& part) {
  names_.clear();
  metadata_.clear();
  written_.clear();
  state_ = part.state;
  divergence_ = part.divergence;
  std::vector<nn::NamedTensors> lists;
  for (const auto& [name, content] : part.files) {
    names_.push_back(name);
    metadata_.push_back(content.metadata);
    metadata_.back().emplace("format", "pt");  // Python's libraries want to know
    lists.push_back(content.tensors);
  }
  lists.push_back(listed(part.overflows));
  try {
    copy_.begin(lists);
    if (!part.stays) copy_.let_writers_wait();
  } catch (const std::exception&) {
    note_failure(std::current_exception());
  }
}

void SnapshotSaver::note_failure(const std::exception_ptr& failure) {
  Failure noted;
  const std::string text = text_of(failure, noted.code);
  noted.text = world_.size() > 1 ? concat("rank ", world_.rank(), ": ", text) : text;
  if (!failure_) failure_ = std::move(noted);
}

SnapshotReport SnapshotSaver::report() {
  if (!in_flight_) return {};
  const bool is_busy = thread_.is_busy();
  if (!is_busy) {
    if (const auto failure = thread_.take_failure()) note_failure(failure);
  }
  const double seconds = is_busy ? 0 : thread_.job_seconds();
  return {.busy = is_busy ? 1.0 : 0.0,
      .failed = failure_ ? 1.0 : 0.0,
      .stall_seconds = stall_seconds_,
      .background_seconds = seconds};
}

void SnapshotSaver::advance(const SnapshotReport& agreed) {
  if (!in_flight_) return;
  if (agreed.failed > 0) is_given_up_ = true;  // rank 0 waits for a list that never comes
  if (agreed.busy > 0) return;
  if (agreed.failed > 0) return give_up();
  in_flight_ = false;
  pending_.reset();
  cost_ = SnapshotCost{agreed.stall_seconds, agreed.background_seconds};
  last_saved_ = step_;
  if (!note_.empty()) warnings_.push_back(std::exchange(note_, {}));
}

// On all ranks, whoever failed: the same reasons reach all.
void SnapshotSaver::give_up() {
  in_flight_ = false;
  const torch::Tensor code = at::full({1}, failure_ ? failure_->code : 0, on_host(torch::kLong));
  world_.all_reduce(code, ReduceOp::kMax).wait();
  std::string reasons;
  for (const auto& text : gather_texts(failure_ ? failure_->text : "", 0, world_)) {
    if (!text.empty()) reasons += (reasons.empty() ? "" : "; ") + text;
  }
  reasons = broadcast_text(reasons, 0, world_);
  pending_.reset();
  failure_.reset();
  const auto text = concat("the snapshot of step ", step_, " could not be written: ", reasons);
  const auto number = static_cast<int>(code.item<std::int64_t>());
  if (number == kDiverged) throw DivergedError(divergence_);
  if (options_.required) {
    const std::error_code reason(number != 0 ? number : EIO, std::generic_category());
    throw std::system_error(reason, without_reason(text, reason));
  }
  warnings_.push_back(text + "; training goes on, and the snapshots before stay");
}

void SnapshotSaver::poll() {
  if (!in_flight_) return;
  SnapshotReport agreed = report();
  maximize(
      {&agreed.busy, &agreed.failed, &agreed.stall_seconds, &agreed.background_seconds}, world_);
  advance(agreed);
}

void SnapshotSaver::finish() {
  while (in_flight_) {
    thread_.wait_for(kBetweenLooks);
    poll();
  }
}

std::vector<std::string> SnapshotSaver::take_warnings() { return std::exchange(warnings_, {}); }

// What a save does in its thread: files, lists, the commit.

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
