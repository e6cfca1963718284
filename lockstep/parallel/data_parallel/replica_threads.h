#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/parallel/place/place.h"
#include "lockstep/parallel/place/place_worker.h"

namespace lockstep::data_parallel {

/// One lasting thread a place, which work at the same time.
class Crew {
 public:
  explicit Crew(const std::vector<Place>& places);

  /// Calls `task(i)` in the first `count` threads, with the modes of the caller, and waits for all.
  /// Then throws what the lowest of them threw, with the replica's number and place (see
  /// throw_from_replica()). Callers in several threads take turns.
  void run(std::size_t count, const std::function<void(std::size_t)>& task);

  std::size_t size() const { return workers_.size(); }
  const Place& place(std::size_t index) const { return workers_[index]->place(); }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<PlaceWorker>> workers_;
};

}  // namespace lockstep::data_parallel
