#pragma once

#include <memory>
#include <utility>

#include "lockstep/core/spans.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep {

/// A handle of a collective that was begun and may not be finished yet.
///
/// The tensors of the collective must not be touched before wait() has returned. A failure of the
/// collective is thrown by wait(), in the thread that calls it.
class [[nodiscard]] Work {
 public:
  /// A backend's view of a collective under way.
  class State {
   public:
    virtual ~State() = default;
    /// Makes progress without blocking; returns whether the collective has ended, well or badly.
    virtual bool poll() = 0;
    /// Blocks until it is finished; throws its failure.
    virtual void wait() = 0;
    /// Returns the rank whose message a recv has got, once it is done; -1 for all other work.
    virtual int sender() const { return -1; }
  };

  /// Makes work that is done already.
  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Returns this work, recorded so that the launcher can show which ranks wait for it.
  Work with(const CallTicket& ticket) && {
    if (state_) ticket_ = ticket;
    return std::move(*this);
  }

  /// Makes progress without blocking and returns whether wait() would return at once. A caller
  /// that only polls gets as far as one that waits: a rank that is lost, or too late, ends the
  /// work.
  bool done() {
    if (state_ && !state_->poll()) return false;
    const CallWait ended(std::exchange(ticket_, {}));
    return true;
  }

  /// Blocks until the collective is finished; throws CommError or TimeoutError if it failed.
  void wait() {
    if (!state_) return;
    const SpanScope span(Activity::kCommunication, "wait");
    const CallWait wait(std::exchange(ticket_, {}));
    state_->wait();
  }

  int sender() const { return state_ ? state_->sender() : -1; }

 private:
  std::shared_ptr<State> state_;
  CallTicket ticket_ = {};
};

}  // namespace lockstep
