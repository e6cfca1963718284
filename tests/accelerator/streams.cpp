#include "tests/accelerator/streams.h"

#include <exception>
#include <limits>
#include <stdexcept>
#include <utility>

#include <ATen/record_function.h>

namespace lockstep::emulated {

std::size_t Streams::make() {
  const std::lock_guard lock(mutex_);
  queues_.emplace_back();
  return queues_.size() - 1;
}

Mark Streams::make_open() { return {make(), std::numeric_limits<std::int64_t>::max()}; }

void Streams::close(std::size_t stream) {
  const std::lock_guard lock(mutex_);
  queues_[stream].is_closed = true;
  changed_.notify_all();
}

void Streams::enqueue(std::size_t stream, Task task) {
  const std::lock_guard lock(mutex_);
  check_alive();
  queues_[stream].pieces.emplace_back(std::move(task));
  ++queues_[stream].queued;
  if (seed_ != 0) run_ahead();
  changed_.notify_all();
}

Mark Streams::mark(std::size_t stream) {
  const std::lock_guard lock(mutex_);
  return {stream, queues_[stream].queued};
}

void Streams::wait(std::size_t stream, Mark mark) {
  const std::lock_guard lock(mutex_);
  if (mark.stream == stream || reached(mark)) return;
  queues_[stream].pieces.emplace_back(mark);
  ++queues_[stream].queued;
  changed_.notify_all();
}

bool Streams::is_reached(Mark mark) {
  const std::lock_guard lock(mutex_);
  return reached(mark);
}

bool Streams::query(Mark mark) {
  const std::lock_guard lock(mutex_);
  if (reached(mark)) return true;
  if (const auto next = needed_first(mark)) step(*next);
  check_alive();
  return reached(mark);
}

void Streams::advance(Mark mark) {
  const std::lock_guard lock(mutex_);
  while (!reached(mark)) {
    const auto next = needed_first(mark);
    if (!next) return;
    step(*next);
  }
}

void Streams::finish(Mark mark) {
  std::unique_lock lock(mutex_);
  while (!reached(mark)) {
    if (const auto next = needed_first(mark)) {
      step(*next);
    } else {
      changed_.wait(lock);
    }
  }
  check_alive();
}

std::size_t Streams::left() {
  const std::lock_guard lock(mutex_);
  std::size_t pieces = 0;
  for (const Queue& queue : queues_) pieces += queue.pieces.size();
  return pieces;
}

void Streams::set_seed(std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  seed_ = seed;
  random_.seed(seed);
}

bool Streams::reached(Mark mark) const {
  const Queue& queue = queues_[mark.stream];
  return queue.done >= mark.position || (queue.is_closed && queue.pieces.empty());
}

bool Streams::is_ready(const Queue& queue) const {
  if (queue.pieces.empty()) return false;
  const Mark* held = std::get_if<Mark>(&queue.pieces.front());
  return held == nullptr || reached(*held);
}

// None: another thread must give it work first. Streams that wait for each other hang on a real
// device.
std::optional<std::size_t> Streams::needed_first(Mark mark) {
  for (std::size_t hops = 0; hops <= queues_.size(); ++hops) {
    if (is_ready(queues_[mark.stream])) return mark.stream;
    if (queues_[mark.stream].pieces.empty()) return std::nullopt;
    mark = std::get<Mark>(queues_[mark.stream].pieces.front());
  }
  error_ = std::make_exception_ptr(std::runtime_error("a deadlock: streams wait for each other"));
  changed_.notify_all();
  std::rethrow_exception(error_);
}

void Streams::run_ahead() {
  for (auto pieces = random_() % 4; pieces > 0; --pieces) {
    const std::size_t stream = random_() % queues_.size();
    if (is_ready(queues_[stream])) step(stream);
  }
}

// After an error, as on a real device, nothing is computed any more.
void Streams::step(std::size_t stream) {
  Queue& queue = queues_[stream];
  const Piece piece = std::move(queue.pieces.front());
  queue.pieces.pop_front();
  ++queue.done;
  changed_.notify_all();
  const Task* task = std::get_if<Task>(&piece);
  if (task == nullptr || error_) return;
  const at::DisableRecordFunctionGuard unseen;  // as what a GPU does: an observer might wait for it
  try {
    (*task)();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void Streams::check_alive() const {
  if (error_) std::rethrow_exception(error_);
}

}  // namespace lockstep::emulated
