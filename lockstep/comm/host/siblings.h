#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep::host {

class Engine;

/// The engines of one rank's groups.
///
/// An engine has no thread, so while the rank waits for one group its part in the others would
/// stand still, and two ranks that wait for two groups in different order would wait for each
/// other. So every wait or poll advances all of them.
class Siblings {
 public:
  void add(const std::shared_ptr<Engine>& engine);

  /// Advances all engines but this one, without blocking; the caller holds no engine's mutex.
  void poll_others(const Engine& engine);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Engine>> engines_;
  std::atomic<std::size_t> count_ = 0;
};

}  // namespace lockstep::host
