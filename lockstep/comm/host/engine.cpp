#include "lockstep/comm/host/engine.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <c10/util/SmallVector.h>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/call_limit.h"
#include "lockstep/comm/host/backoff.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::host {

void RankEngines::add(const std::shared_ptr<Engine>& engine) {
  const std::lock_guard lock(mutex_);
  std::erase_if(engines_, [](const auto& weak) { return weak.expired(); });
  engines_.push_back(engine);
  count_ = engines_.size();
}

// Another thread that holds the lock is advancing them itself.
void RankEngines::poll_others(const Engine& engine) {
  if (count_ <= 1) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  for (const auto& weak : engines_) {
    const auto other = weak.lock();
    if (other && other.get() != &engine) other->poll_if_free();
  }
}

// A pidfd becomes readable when its process ends, and never means a later one of the same number.
PeerWatch::PeerWatch(const std::vector<int>& processes) : processes_(processes) {
  for (const int process : processes) {
    watched_.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    if (!watched_.back() && errno != ESRCH)
      throw_errno(concat("watch the process ", process, " of a rank (pidfd_open)"));
  }
}

std::string PeerWatch::lost(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  pollfd process{watched_[index].get(), POLLIN, 0};
  const bool has_ended = !watched_[index] || ::poll(&process, 1, 0) == 1;
  return has_ended ? concat("(process ", processes_[index], ") has ended") : "";
}

namespace {

/// Counts how long somebody has been asking for work that is not done, so that a loop on
/// Work::done() sees lost peers and the deadline as Work::wait() does.
///
/// A pause between two questions counts as a second at most: whoever computes has not waited.
class Asking {
 public:
  /// Counts one question; returns whether it is time to look, about every millisecond.
  bool ask() {
    const auto now = Clock::now();
    asked_ += std::min<Clock::duration>(now - last_, std::chrono::seconds(1));
    last_ = now;
    if (now - looked_ < std::chrono::milliseconds(1)) return false;
    looked_ = now;
    return true;
  }

  std::chrono::milliseconds asked() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(asked_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point last_ = Clock::now(), looked_ = last_;
  Clock::duration asked_ = {};
};

}  // namespace

/// Holds the mutex. What has ended meanwhile is released after it: the last owner of a tensor may
/// wait for a lock whose holder waits for the mutex, such as that of Python's interpreter.
class Engine::Lock {
 public:
  template <typename... How>
  explicit Lock(Engine& engine, How... how) : engine_(engine), lock_(engine.mutex_, how...) {}
  ~Lock() {
    if (!lock_) return;
    const auto jobs = std::exchange(engine_.ended_, {});
    const auto messages = engine_.post_.take_ended();
    lock_.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  explicit operator bool() const { return lock_.owns_lock(); }

 private:
  Engine& engine_;
  std::unique_lock<std::mutex> lock_;
};

/// A handle of a job or a message: polls and waits through the engine.
template <typename Target>
class Engine::Ticket : public Work::State {
 public:
  Ticket(std::shared_ptr<Engine> engine, std::shared_ptr<Target> target)
      : engine_(std::move(engine)), target_(std::move(target)) {}

  bool poll() override {
    engine_->rank_engines_->poll_others(*engine_);
    const Lock lock(*engine_);
    engine_->poll();
    if (!target_->complete && asking_.ask()) engine_->look(*target_, asking_.asked());
    return target_->complete;
  }

  void wait() override {
    start_asking();
    Alarm& alarm = engine_->region_->alarm(engine_->rank_);
    for (Backoff backoff(engine_->is_crowded_); !poll();) {
      if (backoff.spin([this] { return engine_->shares_core(); })) continue;
      if (alarm.sleep_unless([this] { return poll(); }, backoff.longest_sleep())) backoff.wake();
    }
    if (target_->error) std::rethrow_exception(target_->error);
  }

  int sender() const override {
    if constexpr (std::is_same_v<Target, Message>) return target_->peer;
    return -1;
  }

 private:
  void start_asking() {
    const std::lock_guard lock(engine_->mutex_);
    asking_ = {};
  }

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Target> target_;
  Asking asking_;
};

// Fails if a peer is lost or the time is over.
template <typename Target>
void Engine::look(const Target& target, std::chrono::milliseconds waited) {
  try {
    inspect(target, waited);
  } catch (const CommError&) {
    // A rank may have done its part just before it ended: look once more.
    poll();
    if (!target.complete) fail(std::current_exception());
  }
}

Engine::Engine(std::shared_ptr<SharedRegion> region, std::unique_ptr<AddressSpace> space, int rank)
    : region_(std::move(region)),
      space_(std::move(space)),
      rank_(rank),
      is_crowded_(region_->size() > cores_at_once()),
      post_(*region_, rank) {}

Engine::~Engine() {
  if (::getpid() != process_) return;  // the end of a process that was forked is not the rank's
  if (!jobs_.empty() || !post_.idle()) {
    fail(std::make_exception_ptr(
        CommError(concat(region_->title(rank_), " left the group with unfinished work"))));
  }
  region_->slot(rank_).left.store(1);
  region_->ring_others(rank_);
}

void Engine::join(std::shared_ptr<RankEngines> engines) {
  rank_engines_ = std::move(engines);
  rank_engines_->add(shared_from_this());
}

void Engine::poll_if_free() {
  const Lock lock(*this, std::try_to_lock);
  if (lock) poll();
}

bool Engine::advance_messages() {
  const Lock lock(*this);
  poll();
  return failure_ == nullptr && !post_.idle();
}

Work Engine::begin(Collective collective) {
  const Lock lock(*this);
  auto job = std::make_shared<Job>(
      Job{.collective = std::move(collective), .number = ++collectives_, .limit = limit()});
  job->at_once = job->collective.at_once(region_->size());
  job->complete = failure_ != nullptr;
  job->error = failure_;
  if (!failure_) jobs_.push_back(job);
  poll();
  return Work(std::make_shared<Ticket<Job>>(shared_from_this(), job));
}

Work Engine::post(const torch::Tensor& tensor, int peer, int tag, bool outgoing) {
  const Lock lock(*this);
  auto message = post_.add(tensor, peer, tag, outgoing);
  message->limit = limit();
  if (failure_) post_.fail(failure_);
  poll();
  return Work(std::make_shared<Ticket<Message>>(shared_from_this(), message));
}

std::chrono::milliseconds Engine::limit() const {
  return CallLimit::of_this_thread().value_or(timeout());
}

bool Engine::advance() {
  while (!jobs_.empty() && step(*jobs_.front())) {
    if (!jobs_.front()->complete) continue;
    ended_.push_back(std::move(jobs_.front()));
    jobs_.pop_front();
  }
  post_.poll();
  return !jobs_.empty() || !post_.idle();
}

void Engine::poll() {
  if (failure_) return;
  try {
    // A rank may have arrived just before it gave up: what that allows still counts.
    if (advance() && region_->aborted() && advance()) throw CommError(region_->abort_reason());
  } catch (...) {  // LibTorch's errors too: a round that was left half-way cannot be gone on with
    fail(std::current_exception());
  }
}

void Engine::fail(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& reason) {
    region_->abort(reason.what());
  } catch (...) {
    region_->abort("an exception of an unknown type");
  }
  failure_ = error;
  std::vector<torch::Tensor> tensors = post_.fail(error);
  for (const auto& job : jobs_) {
    job->error = error;
    job->complete = true;
    const auto& own = job->collective.tensors;
    tensors.insert(tensors.end(), own.begin(), own.end());
    space_->retire(job->collective.input);
    space_->retire(job->collective.output);
  }
  jobs_.clear();
  region_->keep(std::move(tensors));
}

// The rounds of the collective under way; see Note [Rounds].

// What can be done without waiting, the oldest round first except that the next one begins before
// the last one is worked on: so the others find this rank's memory ready when they come to it.
bool Engine::step(Job& job) {
  if (may_end(job)) {
    end_round(job);
  } else if (may_begin(job)) {
    begin_round(job);
  } else if (may_work(job)) {
    work_on_round(job);
  } else {
    return false;
  }
  return true;
}

bool Engine::may_begin(const Job& job) {
  constexpr auto kAhead = static_cast<std::int64_t>(RankSlot::kRounds);
  if (job.begun == job.cut.rounds() || job.begun - job.ended == kAhead) return false;
  const std::uint64_t round = rounds_ + 1;
  return round <= RankSlot::kRounds || all_finished(round - RankSlot::kRounds);
}

bool Engine::may_work(const Job& job) const {
  return job.worked < job.begun && all_arrived(job.round_to_work());
}

bool Engine::may_end(const Job& job) {
  if (job.ended == job.worked) return false;
  return !job.waits_for_others() || all_finished(job.round_to_end());
}

// A rank that has not arrived must not go on after an abort, one that has may: where nobody waits
// for the others to finish, the one that gave up may have come to the end itself.
void Engine::begin_round(Job& job) {
  if (region_->aborted()) throw CommError(region_->abort_reason());
  const std::uint64_t round = ++rounds_;
  Arrival& arrival = region_->slot(rank_).arrival(round);
  if (job.begun == 0) introduce(job, arrival.descriptor);
  if (job.staged) {
    copy_in(job.collective, job.cut.chunk(job.begun), region_->staging(rank_, round), rank_,
        region_->size());
  }
  ++job.begun;
  arrival.round.store(round, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // Note [Alarms]
  if (all_arrived(round)) region_->ring_others(rank_);
}

// Decides how the others will see this rank's memory and tells them.
void Engine::introduce(Job& job, Descriptor& descriptor) {
  const Collective& collective = job.collective;
  Exposure exposure;
  if (collective.input != nullptr) {
    std::optional<Exposure> visible;
    if (!job.at_once) visible = space_->expose(collective.input, collective.input_bytes());
    job.staged = !visible;
    exposure = visible.value_or(Exposure{Exposure::kStaging, 0});
  } else if (collective.root_writes()) {
    exposure = space_->expose(collective.output, collective.input_bytes()).value_or(Exposure{});
  }
  job.first = rounds_;
  job.cut = job.staged && !job.at_once ? cut_for_staging(collective) : uncut(collective);
  descriptor = {collective.kind, static_cast<std::int32_t>(collective.element),
      static_cast<std::int32_t>(collective.op), collective.root, collective.elements, exposure};
  RankSlot& slot = region_->slot(rank_);
  slot.collective.store(job.number, std::memory_order_relaxed);
  slot.kind.store(static_cast<std::int32_t>(collective.kind), std::memory_order_relaxed);
  slot.core.store(::sched_getcpu() + 1, std::memory_order_relaxed);
}

// All are in the first round, so each has done with the rounds of the collectives before.
void Engine::meet(Job& job) {
  verify(job);  // first, so that all ranks say of unlike calls what they are
  all_finished_ = std::max(all_finished_, job.first - 1);
  const Collective& collective = job.collective;
  const std::size_t stride =
      static_cast<std::size_t>(collective.elements) * collective.element_bytes();
  for (int rank = 0; rank < region_->size(); ++rank) {
    const Exposure exposure = region_->slot(rank).arrival(job.first).descriptor.exposure;
    const bool own = rank == rank_, staging = exposure.segment == Exposure::kStaging;
    const bool seen = !own && shows(job, rank);
    if (seen) job.held.push_back(space_->resolve(rank, exposure));
    std::byte* const others = seen ? job.held.back().get() : nullptr;
    job.exposed.push_back({own ? collective.input : others, stride});
    if (staging && !job.at_once) job.cut = cut_for_staging(collective);
  }
  job.written_by_root = !collective.gives(rank_) && shows(job, rank_);
  if (job.written_by_root) job.exposed[static_cast<std::size_t>(rank_)].first = collective.output;
}

// A receiver of a broadcast counts where its tensor lies in the root's segment, or in one of its
// own: the root sees that.
bool Engine::shows(const Job& job, int rank) const {
  const auto segment = [&](int of) {
    return region_->slot(of).arrival(job.first).descriptor.exposure.segment;
  };
  if (segment(rank) == Exposure::kNothing || segment(rank) == Exposure::kStaging) return false;
  return job.collective.gives(rank) || (segment(rank) & Exposure::kOwn) != 0 ||
         segment(rank) == segment(job.collective.root);
}

void Engine::work_on_round(Job& job) {
  const std::uint64_t round = job.round_to_work();
  if (job.worked == 0) meet(job);
  // Staging buffers stay; the tensors of a rank that has given up may be gone.
  if (!job.at_once && region_->aborted()) throw CommError(region_->abort_reason());
  const Chunk chunk = job.cut.chunk(job.worked);
  c10::SmallVector<ChunkView, 16> views;
  for (int rank = 0; rank < region_->size(); ++rank) views.push_back(view_of(job, chunk, rank));
  exchange(job.collective, chunk, views, rank_);
  ++job.worked;
  region_->slot(rank_).finished.store(round, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (all_finished(round)) region_->ring_others(rank_);
}

ChunkView Engine::view_of(const Job& job, const Chunk& chunk, int rank) const {
  const std::size_t bytes = job.collective.element_bytes();
  const ChunkView& whole = job.exposed[static_cast<std::size_t>(rank)];
  if (whole.first == nullptr) {
    if (!job.collective.gives(rank)) return {};
    return {
        region_->staging(rank, job.round_to_work()), static_cast<std::size_t>(chunk.count) * bytes};
  }
  return {whole.first + static_cast<std::size_t>(chunk.begin) * bytes, whole.piece_stride};
}

void Engine::end_round(Job& job) {
  if (job.copies_out()) {
    copy_out(job.collective, job.cut.chunk(job.ended), region_->staging(rank_, job.round_to_end()),
        rank_, region_->size());
  }
  ++job.ended;
  job.complete = job.ended == job.cut.rounds();
  if (job.complete) job.held.clear();
}

bool Engine::all_arrived(std::uint64_t round) const {
  for (int rank = 0; rank < region_->size(); ++rank) {
    if (!region_->slot(rank).has_arrived(round)) return false;
  }
  return true;
}

bool Engine::all_finished(std::uint64_t round) {
  if (round <= all_finished_) return true;
  for (int rank = 0; rank < region_->size(); ++rank) {
    if (!region_->slot(rank).has_finished(round)) return false;
  }
  all_finished_ = round;
  return true;
}

bool Engine::shares_core() const {
  const int own = ::sched_getcpu() + 1;
  region_->slot(rank_).core.store(own, std::memory_order_relaxed);
  for (int rank = 0; rank < region_->size(); ++rank) {
    const bool is_here = region_->slot(rank).core.load(std::memory_order_relaxed) == own;
    if (rank != rank_ && is_here && !region_->alarm(rank).is_set()) return true;
  }
  return false;
}

// The engine's messages when ranks disagree, are late or are lost.

namespace {

std::string describe(const Descriptor& descriptor) {
  const auto element = static_cast<at::ScalarType>(descriptor.element);
  std::string text = concat(name_of(descriptor.kind), " of ", descriptor.elements, " ",
      c10::toString(element), " elements");
  if (descriptor.root >= 0) text += concat(", root ", descriptor.root);
  return text;
}

bool agree(const Descriptor& a, const Descriptor& b) {
  return a.kind == b.kind && a.element == b.element && a.op == b.op && a.root == b.root &&
         a.elements == b.elements;
}

}  // namespace

std::string Job::describe() const {
  if (collective.kind == Kind::kBarrier) return concat("barrier #", number);
  return concat(name_of(collective.kind), " #", number, " (", c10::toString(collective.element),
      ", ", collective.elements, " elements)");
}

void Engine::verify(const Job& job) const {
  const Descriptor& own = region_->slot(rank_).arrival(job.first).descriptor;
  for (int rank = 0; rank < region_->size(); ++rank) {
    const Descriptor& other = region_->slot(rank).arrival(job.first).descriptor;
    if (agree(own, other)) continue;
    // The program's fault: the same ranks would do the same again.
    throw InvalidArgument(concat("collective #", job.number,
        ": the ranks do not make the same call: ", region_->title(rank_), " calls ", describe(own),
        ", ", region_->title(rank), " calls ", describe(other)));
  }
}

// A rank is late in arriving where this one could work, else in finishing what it could end, or
// what would free a buffer for the next round.
std::vector<int> Engine::missing() const {
  const Job& job = *jobs_.front();
  const bool arriving = job.worked < job.begun;
  const std::uint64_t unfinished =
      job.ended < job.worked ? job.round_to_end() : rounds_ + 1 - RankSlot::kRounds;
  std::vector<int> ranks;
  for (int rank = 0; rank < region_->size(); ++rank) {
    RankSlot& slot = region_->slot(rank);
    const bool there =
        arriving ? slot.has_arrived(job.round_to_work()) : slot.has_finished(unfinished);
    if (!there) ranks.push_back(rank);
  }
  return ranks;
}

std::string Engine::lost(int rank) const {
  const std::string ended = watch_ ? watch_->lost(rank) : "";
  if (!ended.empty()) return concat(region_->title(rank), " ", ended);
  const bool left = region_->slot(rank).left.load() != 0;
  return left ? concat(region_->title(rank), " has left the group") : "";
}

// The first collective under way is the one that holds up all others.
void Engine::inspect(const Job& asked, std::chrono::milliseconds waited) const {
  const Job& job = *jobs_.front();
  std::vector<std::string> late;
  for (const int rank : missing()) {
    const std::string how = lost(rank);
    // A rank may have done its part just before it ended, so its counter is read again.
    const std::vector<int> still = missing();
    const bool is_missing = std::find(still.begin(), still.end(), rank) != still.end();
    if (!how.empty() && is_missing) throw CommError(concat(job.describe(), ": ", how));
    const RankSlot& slot = region_->slot(rank);
    const auto kind = static_cast<Kind>(slot.kind.load());
    late.push_back(concat(
        region_->title(rank), " (last seen in ", name_of(kind), " #", slot.collective.load(), ")"));
  }
  if (waited < asked.limit || late.empty()) return;
  throw TimeoutError(concat(job.describe(), " on ", region_->title(rank_), ": waited ",
      asked.limit.count(), " ms for ", joined(late)));
}

// A message of any rank may come as long as there is one.
std::string Engine::lost_sender(const Message& message) const {
  if (message.peer != kAnyRank) return lost(message.peer);
  std::string how;
  for (int rank = 0; rank < region_->size(); ++rank) {
    if (rank == rank_) continue;
    how = lost(rank);
    if (how.empty()) break;
  }
  return how;
}

void Engine::inspect(const Message& message, std::chrono::milliseconds waited) const {
  const std::string how = lost_sender(message);
  if (!how.empty()) throw CommError(concat(message.describe(*region_), ": ", how));
  if (waited < message.limit) return;
  throw TimeoutError(concat(message.describe(*region_), " on ", region_->title(rank_), ": waited ",
      message.limit.count(), " ms"));
}

}  // namespace lockstep::host
