#include "lockstep/comm/host/siblings.h"

#include "lockstep/comm/host/engine.h"

namespace lockstep::host {

void Siblings::add(const std::shared_ptr<Engine>& engine) {
  const std::lock_guard lock(mutex_);
  std::erase_if(engines_, [](const auto& weak) { return weak.expired(); });
  engines_.push_back(engine);
  count_ = engines_.size();
}

// Another thread that holds the lock is advancing them itself.
void Siblings::poll_others(const Engine& engine) {
  if (count_ <= 1) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  for (const auto& weak : engines_) {
    const auto other = weak.lock();
    if (other && other.get() != &engine) other->poll_if_free();
  }
}

}  // namespace lockstep::host
