#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/comm/host_backends.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/record/recorded_backend.h"
#include "lockstep/comm/single_backend.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

/// Keeps the first of the exceptions that several threads throw.
class FirstException {
 public:
  void keep(std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = std::move(exception);
  }
  void rethrow() {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

std::string reason_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

}  // namespace

void run_ranks(int size, const std::function<void(ProcessGroup)>& body) {
  check(size >= 1, "run_ranks: the number of ranks must be at least 1: ", size);
  const auto region = ThreadBackend::make_region(size);
  FirstException first;
  const auto run = [&](int rank) {
    try {
      body(size == 1 ? ProcessGroup(std::make_shared<SingleBackend>())
                     : ProcessGroup(recorded_world(std::make_shared<ThreadBackend>(region, rank))));
    } catch (...) {
      first.keep(std::current_exception());
      region->abort(concat("rank ", rank, " failed: ", reason_of(std::current_exception())));
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  }
  first.rethrow();
}

}  // namespace lockstep
