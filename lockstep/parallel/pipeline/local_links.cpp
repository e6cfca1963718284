#include "lockstep/core/stopwatch.h"
#include "lockstep/parallel/pipeline/links.h"

namespace lockstep {

void Exchange::put(const Address& address, const Payload& payload) {
  const std::lock_guard lock(mutex_);
  waiting_.insert_or_assign(address, payload);
  arrived_.notify_all();
}

Payload Exchange::take(const Address& address) {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return stopped_ || waiting_.contains(address); });
  if (stopped_) throw PipelineStopped();
  return std::move(waiting_.extract(address).mapped());
}

void Exchange::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  waiting_.clear();
  arrived_.notify_all();
}

void Exchange::check_running() {
  const std::lock_guard lock(mutex_);
  if (stopped_) throw PipelineStopped();
}

void Exchange::restart() {
  const std::lock_guard lock(mutex_);
  stopped_ = false;
  waiting_.clear();
}

void LocalLinks::send(const Address& address, const Payload& payload) {
  exchange_.put(address, payload);
}

Payload LocalLinks::receive(const Address& address) {
  const Stopwatch waiting;
  Payload payload = exchange_.take(address);
  waited_seconds_ += waiting.seconds();
  return payload;
}

}  // namespace lockstep
