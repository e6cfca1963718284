#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "lockstep/comm/work.h"

namespace lockstep {

/// Why a group was given up; its works, in whatever thread, fail with it. Empty while it was not.
class AbortReason {
 public:
  /// Keeps the first reason; returns whether this was it.
  bool set(const std::string& reason);
  std::string get() const;

 private:
  mutable std::mutex mutex_;
  std::string reason_;
};

/// A call that a group of c10d has begun.
struct C10dCall {
  std::string what;  ///< for messages
  c10::intrusive_ptr<c10d::Work> work;
  std::shared_ptr<const AbortReason> aborted;
  std::function<void()> finish = nullptr;  ///< runs once, when the caller has waited
};

/// Makes work of a collective, which c10d carries out in a thread of its own.
Work collective_work(C10dCall call);

/// Makes work of a message. c10d sees that a message has passed only inside of its wait(), so from
/// the first time that somebody asks, a thread waits.
Work message_work(C10dCall call);

/// Throws CommError, or TimeoutError, with the first line of c10d's message.
[[noreturn]] void rethrow_as_comm_error(const std::string& what, const std::exception& error);

}  // namespace lockstep
