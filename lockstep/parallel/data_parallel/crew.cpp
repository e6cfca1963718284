#include "lockstep/parallel/data_parallel/crew.h"

#include <exception>

#include "lockstep/core/error.h"
#include "lockstep/parallel/data_parallel/replica_error.h"
#include "lockstep/parallel/place/thread_modes.h"

namespace lockstep::data_parallel {
namespace {

/// Waits for a worker and gives what its task threw.
std::exception_ptr outcome(PlaceWorker& worker) {
  try {
    worker.wait();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

Crew::Crew(const std::vector<Place>& places) {
  check(!places.empty(), "DataParallel: there must be at least one place");
  for (std::size_t i = 0; i < places.size(); ++i) {
    workers_.push_back(std::make_unique<PlaceWorker>(places[i], concat("replica ", i)));
  }
}

void Crew::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  const std::lock_guard lock(mutex_);
  const ThreadModes modes;
  for (std::size_t i = 0; i < count; ++i) {
    workers_[i]->begin([&, i] {
      const ThreadModes::Scope scope(modes);
      task(i);
    });
  }
  // All must have stopped before anything is thrown: they use what the caller owns.
  std::vector<std::exception_ptr> outcomes;
  for (std::size_t i = 0; i < count; ++i) outcomes.push_back(outcome(*workers_[i]));
  for (std::size_t i = 0; i < count; ++i) {
    if (outcomes[i]) throw_from_replica(outcomes[i], i, place(i));
  }
}

}  // namespace lockstep::data_parallel
