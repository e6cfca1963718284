#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include "lockstep/comm/work.h"

namespace lockstep {

/// A tensor of an accelerator and its copy in pinned memory.
struct StagedTensor {
  torch::Tensor on_device = {};
  torch::Tensor on_host = {};
  bool is_input = false, is_output = false;
};

/// A collective on its way through the host: copied there, carried, copied back.
class StagedCall : public Work::State {
 public:
  using Begin = std::function<Work(const std::vector<StagedTensor>&)>;

  /// The calls that a call waits for. A message that is received waits for those alone: its sender
  /// does not wait for what this rank has yet to compute, and send.
  enum class Turn { kReceived, kAnyOther };

  /// Begins to copy the inputs to the host, after what the current stream has been given.
  StagedCall(std::vector<StagedTensor> tensors, Begin begin, Turn turn);

  bool poll() override;
  void wait() override;

 private:
  friend class StagingThread;

  void copy_to_host();
  bool has_arrived() { return !arrived_ || arrived_->query(); }
  void begin() { work_ = begin_(tensors_); }
  /// Copies the outputs back if the host has them; returns whether it has.
  bool try_to_finish();
  void end(std::exception_ptr failure);

  std::vector<StagedTensor> tensors_;
  Begin begin_;
  Turn turn_;
  std::optional<c10::Stream> side_;     // on which the copies run
  std::optional<c10::Event> arrived_;   // of the inputs, on the host
  std::optional<c10::Event> returned_;  // of the outputs, on the device
  Work work_;
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;
  std::exception_ptr failure_;
};

/// A thread that takes calls through the host: begins those of a turn in their order, when their
/// inputs have arrived, and ends each when it is done.
class StagingThread {
 public:
  StagingThread() : thread_([this] { run(); }) {}

  /// Gives up what has not ended.
  ~StagingThread();
  StagingThread(const StagingThread&) = delete;
  StagingThread& operator=(const StagingThread&) = delete;

  void add(std::shared_ptr<StagedCall> call);

 private:
  using Calls = std::deque<std::shared_ptr<StagedCall>>;

  void run();
  bool take_new(Calls& waiting, Calls& receiving, bool is_idle);
  static bool begin_arrived(Calls& waiting, Calls& begun);
  static bool end_done(Calls& begun);

  std::mutex mutex_;
  std::condition_variable added_;
  Calls calls_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace lockstep
