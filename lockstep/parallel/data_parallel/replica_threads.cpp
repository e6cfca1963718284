#include "lockstep/parallel/data_parallel/replica_threads.h"

#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <typeinfo>

#include <c10/util/Exception.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/place/thread_modes.h"

namespace lockstep::data_parallel {
namespace {

/// Throws `Kind` with the text if the exception is exactly that.
template <typename Kind>
void throw_if(const std::exception& error, const std::string& text) {
  if (typeid(error) == typeid(Kind)) throw Kind(text);
}

template <typename... Kinds>
void throw_as_one_of(const std::exception& error, const std::string& text) {
  (throw_if<Kinds>(error, text), ...);
}

void throw_in_its_type(const std::exception& error, const std::string& text) {
  throw_as_one_of<InvalidArgument, DataError, CommError, TimeoutError, DivergedError, Error,
      std::invalid_argument, std::domain_error, std::length_error, std::out_of_range,
      std::logic_error, std::range_error, std::overflow_error, std::underflow_error,
      std::runtime_error>(error, text);
}

/// Throws the exception again, with the number and place of the replica that threw it.
[[noreturn]] void throw_from_replica(
    const std::exception_ptr& exception, std::size_t replica, const Place& place) {
  const std::string who = concat("replica ", replica, " (", describe(place), "): ");
  try {
    std::rethrow_exception(exception);
  } catch (c10::Error& error) {
    error.add_context(concat("in ", who.substr(0, who.size() - 2)));
    throw;
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), who + error.what());
  } catch (const std::exception& error) {
    throw_in_its_type(error, who + error.what());
    std::throw_with_nested(Error(who + error.what()));
  } catch (...) {
    std::throw_with_nested(Error(who + "an exception of an unknown type"));
  }
}

/// Waits for a worker and returns what its task threw.
std::exception_ptr outcome(PlaceWorker& worker) {
  try {
    worker.wait();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

ReplicaThreads::ReplicaThreads(const std::vector<Place>& places) {
  check(!places.empty(), "DataParallel: there must be at least one place");
  for (std::size_t i = 0; i < places.size(); ++i) {
    workers_.push_back(std::make_unique<PlaceWorker>(places[i], concat("replica ", i)));
  }
}

void ReplicaThreads::run(std::size_t count, const std::function<void(std::size_t)>& task) {
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
