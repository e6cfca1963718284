#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "lockstep/comm/work.h"

namespace lockstep {

/// A group that can be given up, from any thread: then all that is under way fails, on all ranks.
class AbortableGroup {
 public:
  virtual ~AbortableGroup() = default;
  /// Gives the group up; the first reason stays.
  void give_up(const std::string& reason);
  /// Returns why it was given up; empty while it was not.
  std::string abort_reason() const;

 private:
  virtual void close_connections() = 0;

  mutable std::mutex mutex_;
  std::string reason_;
};

/// A call that a group of c10d has begun.
struct C10dCall {
  std::string what;  ///< for messages
  c10::intrusive_ptr<c10d::Work> work;
  std::weak_ptr<AbortableGroup> group;     ///< a work that fails gives it up: others wait for it
  std::function<void()> finish = nullptr;  ///< runs once, when the caller has waited
};

/// Makes work of a collective, which c10d carries out in a thread of its own, with its deadline.
Work collective_work(C10dCall call);

/// Makes work of a message. c10d sees that a message has passed only inside of its wait(), so from
/// the first time that somebody asks, a thread waits.
Work message_work(C10dCall call, std::chrono::milliseconds timeout);

/// Throws CommError, or TimeoutError, with the first line of c10d's message.
[[noreturn]] void rethrow_as_comm_error(const std::string& what, const std::exception& error);

}  // namespace lockstep
