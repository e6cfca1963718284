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

/// Throws CommError with NCCL's text unless the result is good.
void check_result(Result result, const std::string& what, Communicator* communicator = nullptr);

/// A communicator of NCCL and the stream that its kernels run on, in the order of the calls. What
/// it cannot do it says when the next call is made or waited for.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  /// Meets the other ranks by `host`. A collective.
  Channel(Backend& host, torch::Device device, std::string name);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  using Enqueue = std::function<Result(Communicator*, Stream)>;

  /// Enqueues what reads and writes these tensors, after what the current stream has been given.
  /// Throws CommError if the channel was given up.
  Work call(const char* what, const std::vector<torch::Tensor>& tensors, const Enqueue& enqueue);

  /// Gives up: kernels under way end, later calls and waits throw CommError with this reason, the
  /// first that was given. May be called by any thread.
  void abort(const std::string& reason, bool is_timeout = false);

  /// Gives up once the kernels under way have ended; waits for them so long at most.
  void close(std::chrono::milliseconds patience);

  /// Gives up if NCCL reports an error, or if the oldest call has been under way for longer than
  /// this.
  void watch(std::chrono::milliseconds timeout);

 private:
  struct Call;
  class CallState;
  using Clock = std::chrono::steady_clock;

  void throw_if_aborted(const std::string& what) const;
  bool is_aborted() const;
  bool is_under_way();
  void forget_ended();
  std::string async_error();

  std::string name_;
  torch::Device device_;
  c10::Stream stream_;
  Communicator* communicator_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Call>> under_way_;
  std::string reason_;
  bool timed_out_ = false;
};

}  // namespace lockstep::nccl
