#include "lockstep/snapshot/snapshot_saver.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <limits>
#include <pthread.h>
#include <sched.h>
#include <stdexcept>
#include <sys/resource.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/formats/open_directory.h"
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

}  // namespace

void PartCopy::begin(const SnapshotPart& part) {
  names_.clear();
  metadata_.clear();
  state_ = part.state;
  divergence_ = part.divergence;
  std::vector<nn::NamedTensors> lists;
  for (const auto& [name, content] : part.files) {
    names_.push_back(name);
    metadata_.push_back(content.metadata);
    metadata_.back().emplace("format", "pt");  // Python's libraries want to know
    lists.push_back(content.tensors);
  }
  nn::NamedTensors& overflows = lists.emplace_back("Tensor");
  for (const torch::Tensor& overflow : part.overflows)
    overflows.insert(concat(overflows.size()), overflow);
  tensors_.begin(lists);
}

std::vector<OwnFile> PartCopy::files() {
  auto lists = tensors_.row_major();
  lists.resize(names_.size() + 1);
  for (const TensorEntry& overflow : lists.back())
    if (overflow.bytes.front() != 0) throw DivergedError(divergence_);
  std::vector<OwnFile> own;
  for (std::size_t i = 0; i < names_.size(); ++i)
    own.push_back(own_file(names_[i], std::move(lists[i]), metadata_[i]));
  if (!state_.empty())
    own.push_back({.facts = {.file = {.name = kStateFile, .sha256 = {}}},
        .write = [this](ByteSink& sink) { sink.write(std::string_view(state_)); }});
  return own;
}

namespace {

// On a core that also trains this leaves the thread about a tenth of the time: a step is hardly
// longer, and a job that may take a hundredth of the time of training is soon done all the same.
constexpr int kNice = 10;

double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Linux keeps niceness and policy of each thread by itself; a batch thread that is woken does not
// push aside the one that woke it. If Linux refuses, the job only disturbs more.
void give_way() {
  ::pthread_setname_np(::pthread_self(), "snapshot");
  const sched_param no_priority{};
  ::sched_setscheduler(0, SCHED_BATCH, &no_priority);
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
}

// A file that grows too large is a failure of its write, also where the program has not said so.
void block_file_size_signal() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
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
  wait_for_thread(options_.patience);
  if (world_.size() > 1 && (world_.rank() == 0 || options_.hosts.are_apart())) stop_waiting();
  say_how_it_ended();
}

// For ranks that may be gone.
void SnapshotSaver::stop_waiting() {
  is_given_up_ = true;
  const SnapshotHosts& hosts = options_.hosts;
  if (hosts.are_apart() && is_busy())
    hosts.group().abort(concat("rank ", world_.rank(), " waits no longer for files of a snapshot"));
}

// For the destructor, after which nobody can call take_warnings().
void SnapshotSaver::say_how_it_ended() {
  end_job();
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

// A failure to start the thread must reach the other ranks, which wait for its files.
void SnapshotSaver::begin_thread() {
  try {
    job_ = std::async(std::launch::async, [this] {
      give_way();
      block_file_size_signal();
      work();
      return thread_seconds();
    });
  } catch (const std::exception&) {
    note_failure(std::current_exception());
  }
}

bool SnapshotSaver::is_busy() const {
  return job_.valid() && job_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void SnapshotSaver::wait_for_thread(std::chrono::milliseconds most) const {
  if (job_.valid()) job_.wait_for(most);
}

// Waits for the thread, and takes what it leaves.
void SnapshotSaver::end_job() {
  if (!job_.valid()) return;
  try {
    background_seconds_ = job_.get();
  } catch (...) {
    note_failure(std::current_exception());
  }
}

// Only its name: making it may wait for the disk, and is the thread's.
void SnapshotSaver::agree_on_folder() {
  const auto path = snapshots_ / aside_name(step_);
  aside_ = broadcast_text(world_.rank() == 0 ? path.string() : "", 0, world_);
}

void SnapshotSaver::copy(const SnapshotPart& part) {
  divergence_ = part.divergence;
  try {
    copy_.begin(part);
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
  const bool goes_on = is_busy();
  if (!goes_on) end_job();
  return {.busy = goes_on ? 1.0 : 0.0,
      .failed = failure_ ? 1.0 : 0.0,
      .stall_seconds = stall_seconds_,
      .background_seconds = goes_on ? 0 : background_seconds_};
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
  for (const auto& text : all_texts(failure_ ? failure_->text : "", world_)) {
    if (!text.empty()) reasons += (reasons.empty() ? "" : "; ") + text;
  }
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
    wait_for_thread(kBetweenLooks);
    poll();
  }
}

std::vector<std::string> SnapshotSaver::take_warnings() { return std::exchange(warnings_, {}); }

// What a save does in its thread: files, lists, the commit.

namespace {

// What a rank has written stands here until rank 0 has read it; it is not a file of a snapshot.
std::string list_name(int rank) { return concat("written-", rank, ".json"); }

void set_best_and_prune(const SnapshotFolder& folder, std::int64_t step, bool is_best, int keep) {
  if (is_best) folder.set_best(step);
  folder.prune(keep, step);
}

}  // namespace

// A failure before the files are spread must reach the others, which would wait for them.
void SnapshotSaver::work() {
  const SnapshotHosts& hosts = options_.hosts;
  std::optional<std::vector<WrittenFile>> files;
  if (!hosts.are_apart()) {
    open_folder();
    if (is_given_up_) return;
    files = share_files(copy_.files());
  } else {
    std::exception_ptr failure;
    std::vector<OwnFile> own;
    try {
      if (hosts.keeps()) open_folder();
      own = copy_.files();
    } catch (...) {
      failure = std::current_exception();
    }
    files =
        spread_files(hosts.group(), hosts.keepers(), pending_ ? &*pending_ : nullptr, own, failure);
    if (is_given_up_) return;
  }
  if (files && commits()) commit(std::move(*files));
}

// Who commits makes it, the others wait until they see it; not without end, as rank 0 may have
// gone.
void SnapshotSaver::open_folder() {
  if (commits()) {
    pending_.emplace(PendingSnapshot::begin(folder_, aside_.filename().string()));
    return;
  }
  const Stopwatch watch;
  const auto most = static_cast<double>(options_.patience.count());
  while (!is_given_up_ && !is_there_now(aside_)) {
    if (watch.seconds() > most)
      throw std::runtime_error(
          concat(aside_.string(), ": rank 0 has not made it within ", most, " s"));
    std::this_thread::sleep_for(kBetweenLooks);
  }
  if (!is_given_up_) pending_.emplace(PendingSnapshot::join(aside_));
}

// Returns the files of all ranks on rank 0, once all have written theirs.
std::optional<std::vector<WrittenFile>> SnapshotSaver::share_files(
    const std::vector<OwnFile>& own) {
  std::vector<WrittenFile> written;
  for (const OwnFile& file : own) {
    if (is_given_up_) return std::nullopt;
    written.push_back(write_own(file, *pending_));
  }
  if (world_.rank() != 0) {
    if (!is_given_up_) pending_->write(list_name(world_.rank()), to_json(written));
    return std::nullopt;
  }
  while (!is_given_up_) {
    if (auto files = files_of_all(written)) return files;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return std::nullopt;
}

// Nothing until the list of each rank is there, and whole.
std::optional<std::vector<WrittenFile>> SnapshotSaver::files_of_all(
    std::vector<WrittenFile> files) const {
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
    set_best_and_prune(folder_, step_, best_, options_.keep);
  } catch (const std::exception& error) {
    note_ = concat(
        "the snapshot of step ", step_, " is complete, but older ones may be left: ", error.what());
  }
}

// Of ranks that come at the same moment the first one makes the folder.
bool save_alone(
    const std::filesystem::path& run, int keep, std::int64_t step, const SnapshotPart& part) {
  const SnapshotFolder folder(run);
  if (is_there_now(folder.path() / snapshot_name(step))) return false;
  std::optional<PendingSnapshot> pending;
  try {
    pending.emplace(PendingSnapshot::begin(folder, rescue_name(step)));
  } catch (const std::system_error& error) {
    if (error.code().value() != EEXIST) throw;
    return false;
  }
  PartCopy copy;
  copy.begin(part);
  copy.let_writers_wait();
  std::vector<WrittenFile> written;
  for (const OwnFile& file : copy.files()) written.push_back(write_own(file, *pending));
  commit_files(*pending, std::move(written));
  set_best_and_prune(folder, step, part.best, keep);
  return true;
}

}  // namespace lockstep
