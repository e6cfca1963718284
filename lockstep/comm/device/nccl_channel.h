#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/device/nccl_api.h"
#include "lockstep/comm/work.h"

namespace lockstep::nccl {

/// Says whether a call of NCCL's was taken: it may not be on its stream yet.
inline bool is_taken(Result result) {
  return result == Result::kSuccess || result == Result::kInProgress;
}

/// Throws CommError with NCCL's text unless the call was taken.
void check_result(Result result, const std::string& what, Communicator* communicator = nullptr);

// Note [Calls that do not block]
// The first message between two ranks, and the first collective of all, connects them: until the
// others come, NCCL would keep the caller. Two ranks that each send first would keep each other for
// good, and nothing could end it: no communicator may be aborted while a call of it runs. So
// communicators are made not to block. A call then returns at once, and NCCL goes on with it in a
// thread of its own. Until that says so, the kernel is not on the stream, so that the end of the
// call cannot be recorded, its tensors must be kept, and no other call may be made. Who makes the
// next call of a channel, or waits for this one, waits for that; the watchdog ends both. NCCL lets
// NCCL_COMM_BLOCKING=1 in the environment overrule this.

/// A communicator of NCCL and the stream that its kernels run on, in the order of the calls. What
/// it cannot do it says when the next call is made or waited for.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  /// Meets the other ranks by `host`, within its timeout. A collective.
  Channel(Backend& host, torch::Device device, std::string name);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  using Enqueue = std::function<Result(Communicator*, Stream)>;

  /// Enqueues what reads and writes these tensors, after what the current stream has been given;
  /// the call before must be on the stream by then. Throws CommError if the channel was given up.
  Work call(const char* what, const std::vector<torch::Tensor>& tensors, const Enqueue& enqueue);

  /// Gives up: kernels under way end, later calls and waits throw CommError with this reason, the
  /// first that was given. May be called by any thread.
  void abort(const std::string& reason);

  /// Leaves the other ranks once the kernels under way have ended; waits for them so long at most,
  /// and gives up otherwise.
  void close(std::chrono::milliseconds patience);

  /// Gives up if NCCL reports an error, or if the oldest call has been under way for longer than
  /// this.
  void watch(std::chrono::milliseconds timeout);

 private:
  struct Call;
  class CallState;
  using Clock = std::chrono::steady_clock;

  void wait_until_launched(const std::shared_ptr<Call>& call, const std::string& what);
  bool is_launched(const Call& call, const std::string& what);
  bool has_ended(const Call& call);
  void let_wait(const Call& call);
  bool is_under_way();
  bool is_finalized(Clock::time_point deadline);

  // With the mutex held.
  void look();
  void mark_end(Call& call);
  void forget_ended();
  void give_up(const std::string& reason, bool is_timeout = false);
  void throw_if_given_up(const std::string& what) const;

  std::string name_;
  torch::Device device_;
  c10::Stream stream_;
  std::mutex turn_;  // of who makes a call
  std::mutex mutex_;
  Communicator* communicator_ = nullptr;
  std::vector<std::shared_ptr<Call>> under_way_;
  std::shared_ptr<Call> last_;
  std::string reason_;
  bool timed_out_ = false;
};

}  // namespace lockstep::nccl
