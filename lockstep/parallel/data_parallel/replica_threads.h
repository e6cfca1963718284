#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/parallel/place/place.h"
#include "lockstep/parallel/place/place_worker.h"

namespace lockstep::data_parallel {

/// A lasting thread for each place; all work at the same time.
class ReplicaThreads {
 public:
  explicit ReplicaThreads(const std::vector<Place>& places);

  /// Calls `task(i)` in the first `count` threads, with the caller's modes, and waits for all.
  /// Callers in several threads take turns.
  ///
  /// Then throws what the lowest of them threw: the types of Lockstep, of LibTorch and of the
  /// standard library stay what they are, and their texts are preceded by `replica 1 (cpu cores
  /// 2-3): `. Another type cannot take a text: it becomes an Error in which it is nested
  /// (std::rethrow_if_nested() returns it).
  void run(std::size_t count, const std::function<void(std::size_t)>& task);

  std::size_t size() const { return workers_.size(); }
  const Place& place(std::size_t index) const { return workers_[index]->place(); }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<PlaceWorker>> workers_;
};

}  // namespace lockstep::data_parallel
