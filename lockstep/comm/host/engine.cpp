#include "lockstep/comm/host/engine.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "lockstep/comm/host/asking.h"
#include "lockstep/comm/host/backoff.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"

namespace lockstep::host {

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
    Alarm& alarm = engine_->region_->alarm(engine_->rank_);
    for (Backoff backoff(engine_->is_crowded_); !poll();) {
      if (backoff.spin([this] { return engine_->shares_core(); })) continue;
      if (alarm.sleep_unless([this] { return poll(); }, backoff.longest_sleep())) backoff.wake();
    }
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
    : region_(std::move(region)),
      space_(std::move(space)),
      rank_(rank),
      is_crowded_(region_->size() > cores_at_once()),
      post_(*region_, rank) {}

Engine::~Engine() {
  if (!jobs_.empty() || !post_.idle()) {
    fail(std::make_exception_ptr(
        CommError(concat("rank ", rank_, " left the group with unfinished work"))));
  }
  region_->slot(rank_).left.store(1);
  region_->ring_others(rank_);
}

void Engine::join(std::shared_ptr<Siblings> siblings) {
  siblings_ = std::move(siblings);
  siblings_->add(shared_from_this());
}

void Engine::poll_if_free() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) poll();
}

bool Engine::advance_messages() {
  const std::lock_guard lock(mutex_);
  poll();
  return failure_ == nullptr && !post_.idle();
}

Work Engine::begin(Collective collective) {
  const std::lock_guard lock(mutex_);
  auto job =
      std::make_shared<Job>(Job{.collective = std::move(collective), .number = ++collectives_});
  job->at_once = job->collective.at_once(region_->size());
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

bool Engine::advance() {
  while (!jobs_.empty() && step(*jobs_.front())) {
    if (jobs_.front()->complete) jobs_.pop_front();
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
  }
  jobs_.clear();
  region_->keep(std::move(tensors));
}

}  // namespace lockstep::host
