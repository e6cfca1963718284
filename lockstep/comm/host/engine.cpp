#include "lockstep/comm/host/engine.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <sched.h>
#include <thread>

#include "lockstep/comm/host/asking.h"
#include "lockstep/core/error.h"

namespace lockstep::host {
namespace {

/// Waits a little longer each time: spins, then yields the core, then sleeps.
///
/// Spinning gives the lowest latency where each rank has its own core; yielding lets the
/// awaited rank run where it has not; sleeping spares the machine when a rank computes for long.
class Backoff {
 public:
  void wait() {
    ++turns_;
    if (turns_ <= kSpins) return pause();
    if (turns_ <= kSpins + kYields) return static_cast<void>(::sched_yield());
    std::this_thread::sleep_for(
        std::chrono::microseconds(turns_ < kSpins + 2 * kYields ? 100 : 500));
  }

 private:
  static constexpr std::uint32_t kSpins = 200, kYields = 4000;

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::uint32_t turns_ = 0;
};

}  // namespace

/// A handle of a job or a message: polls and waits through the engine.
template <typename Target>
class Engine::Ticket : public Work::State {
 public:
  Ticket(std::shared_ptr<Engine> engine, std::shared_ptr<Target> target)
      : engine_(std::move(engine)), target_(std::move(target)) {}

  bool poll() override {
    engine_->siblings_->poll_others(*engine_);
    const std::lock_guard lock(engine_->mutex_);
    engine_->poll();
    if (!target_->complete && asking_.ask()) engine_->look(*target_, asking_.asked());
    return target_->complete;
  }

  void wait() override {
    start_asking();
    for (Backoff backoff; !poll();) backoff.wait();
    if (target_->error) std::rethrow_exception(target_->error);
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
    : region_(std::move(region)), space_(std::move(space)), rank_(rank), post_(*region_, rank) {}

std::int64_t Engine::Job::capacity() const {
  const std::size_t bytes =
      collective.element_bytes() * static_cast<std::size_t>(collective.pieces);
  return static_cast<std::int64_t>(SharedRegion::kStagingBytes / bytes);
}

Engine::~Engine() {
  if (!jobs_.empty() || !post_.idle()) {
    fail(std::make_exception_ptr(
        CommError(concat("rank ", rank_, " left the group with unfinished work"))));
  }
  region_->slot(rank_).left.store(1);
}

void Engine::join(std::shared_ptr<Siblings> siblings) {
  siblings_ = std::move(siblings);
  siblings_->add(shared_from_this());
}

void Engine::poll_if_free() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) poll();
}

Work Engine::begin(Collective collective) {
  const std::lock_guard lock(mutex_);
  auto job =
      std::make_shared<Job>(Job{.collective = std::move(collective), .number = ++collectives_});
  job->complete = failure_ != nullptr;
  job->error = failure_;
  if (!failure_) jobs_.push_back(job);
  poll();
  return Work(std::make_shared<Ticket<Job>>(shared_from_this(), job));
}

Work Engine::post(const torch::Tensor& tensor, int peer, int tag, bool outgoing) {
  const std::lock_guard lock(mutex_);
  auto message = post_.add(tensor, peer, tag, outgoing);
  if (failure_) post_.fail(failure_);
  poll();
  return Work(std::make_shared<Ticket<Message>>(shared_from_this(), message));
}

void Engine::poll() {
  if (failure_) return;
  try {
    while (!jobs_.empty() && advance(*jobs_.front())) jobs_.pop_front();
    post_.poll();
    const bool under_way = !jobs_.empty() || !post_.idle();
    if (under_way && region_->aborted()) throw CommError(region_->abort_reason());
  } catch (...) {  // LibTorch's errors too: a round that was left half-way cannot be gone on with
    fail(std::current_exception());
  }
}

bool Engine::advance(Job& job) {
  while (!job.complete) {
    if (job.phase == Job::Phase::kQueued) begin_round(job);
    if (job.phase == Job::Phase::kArriving) {
      if (!all_reached(&RankSlot::arrived)) return false;
      work_on_round(job);
    }
    if (!all_reached(&RankSlot::finished)) return false;
    job.complete = end_round(job);
  }
  return true;
}

void Engine::begin_round(Job& job) {
  const Collective& collective = job.collective;
  Exposure exposure;
  if (collective.input != nullptr) {
    const auto visible = space_->expose(
        collective.input, static_cast<std::size_t>(collective.elements * collective.pieces) *
                              collective.element_bytes());
    job.staged = !visible;
    exposure = visible.value_or(Exposure{Exposure::kStaging, 0});
  }
  if (job.staged) {
    const Chunk chunk{job.done, std::min(job.capacity(), collective.elements - job.done)};
    copy_in(collective, chunk, region_->staging(rank_));
  }
  RankSlot& slot = region_->slot(rank_);
  slot.descriptor = {collective.kind, static_cast<std::int32_t>(collective.element),
      static_cast<std::int32_t>(collective.op), collective.root, collective.elements, exposure};
  slot.collective.store(job.number, std::memory_order_relaxed);
  slot.kind.store(static_cast<std::int32_t>(collective.kind), std::memory_order_relaxed);
  slot.arrived.store(++rounds_, std::memory_order_release);
  job.phase = Job::Phase::kArriving;
}

void Engine::work_on_round(Job& job) {
  verify(job);  // first, so that all ranks say of unlike calls what they are
  if (region_->aborted()) throw CommError(region_->abort_reason());
  job.chunk = chunk_of(job);
  std::vector<ChunkView> views;
  for (int rank = 0; rank < region_->size(); ++rank) views.push_back(view_of(job, job.chunk, rank));
  exchange(job.collective, job.chunk, views, rank_);
  region_->slot(rank_).finished.store(rounds_, std::memory_order_release);
  job.phase = Job::Phase::kFinishing;
}

bool Engine::end_round(Job& job) {
  if (job.staged && job.collective.in_place() && job.collective.output != nullptr) {
    copy_out(job.collective, job.chunk, region_->staging(rank_));
  }
  job.done += job.chunk.count;
  job.phase = Job::Phase::kQueued;
  return job.done == job.collective.elements;
}

Chunk Engine::chunk_of(const Job& job) const {
  const std::int64_t rest = job.collective.elements - job.done;
  for (int rank = 0; rank < region_->size(); ++rank) {
    if (region_->slot(rank).descriptor.exposure.segment == Exposure::kStaging) {
      return {job.done, std::min(job.capacity(), rest)};
    }
  }
  return {job.done, rest};
}

ChunkView Engine::view_of(const Job& job, const Chunk& chunk, int rank) const {
  const Exposure exposure = region_->slot(rank).descriptor.exposure;
  const std::size_t bytes = job.collective.element_bytes();
  if (exposure.segment == Exposure::kNothing) return {};
  if (exposure.segment == Exposure::kStaging) {
    return {region_->staging(rank), static_cast<std::size_t>(chunk.count) * bytes};
  }
  return {space_->resolve(rank, exposure) + static_cast<std::size_t>(chunk.begin) * bytes,
      static_cast<std::size_t>(job.collective.elements) * bytes};
}

bool Engine::all_reached(std::atomic<std::uint64_t> RankSlot::*counter) const {
  for (int rank = 0; rank < region_->size(); ++rank) {
    if ((region_->slot(rank).*counter).load(std::memory_order_acquire) < rounds_) return false;
  }
  return true;
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
  }
  jobs_.clear();
  region_->keep(std::move(tensors));
}

}  // namespace lockstep::host
