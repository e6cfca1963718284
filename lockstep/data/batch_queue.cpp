#include "lockstep/data/batch_queue.h"

#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::data {

BatchQueue::BatchQueue(Prepare prepare, const Bounds& bounds)
    : prepare_(std::move(prepare)),
      bounds_(bounds),
      slots_(static_cast<std::size_t>(bounds.ahead)),
      begun_(bounds.first),
      taken_(bounds.first) {
  check(bounds.workers > 0, "BatchQueue: there must be a worker: ", bounds.workers);
  try {
    for (int i = 0; i < bounds.workers; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    stop();  // The destructor does not run: the threads that are there must not outlive this.
    throw;
  }
}

BatchQueue::~BatchQueue() { stop(); }

void BatchQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  room_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BatchQueue::next(Batch& batch) {
  std::exception_ptr error;
  {
    std::unique_lock lock(mutex_);
    check(taken_ < bounds_.end, "BatchQueue: there is no further batch");
    Slot& slot = slot_of(taken_);
    prepared_.wait(lock, [&] { return slot.ready; });
    std::swap(slot.batch, batch);
    error = std::exchange(slot.error, nullptr);
    slot.ready = false;
    ++taken_;
  }
  room_.notify_all();
  if (error) std::rethrow_exception(error);
}

void BatchQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    room_.wait(lock, [this] { return stopped_ || begun_ == bounds_.end || may_begin(); });
    if (stopped_ || begun_ == bounds_.end) return;
    const std::int64_t number = begun_++;
    Slot& slot = slot_of(number);
    lock.unlock();
    try {
      prepare_(slot.batch, number);
    } catch (...) {
      slot.error = std::current_exception();
    }
    lock.lock();
    slot.ready = true;
    prepared_.notify_one();
  }
}

// A slot is free again when the batch before in it has been taken.
bool BatchQueue::may_begin() const { return begun_ < taken_ + std::ssize(slots_); }

BatchQueue::Slot& BatchQueue::slot_of(std::int64_t number) {
  return slots_[static_cast<std::size_t>(number) % slots_.size()];
}

}  // namespace lockstep::data
