#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/pipeline/payload.h"

namespace lockstep {

/// The transport of payloads between the ranks of one pipeline.
///
/// A send does not wait for its receive, so ranks may run their schedules strictly in order; a
/// payload is received when an action needs it, so none waits earlier than it must.
class Links {
 public:
  virtual ~Links() = default;
  virtual void send(const Address& address, const Payload& payload) = 0;
  virtual Payload receive(const Address& address) = 0;
  /// Advances what is under way; throws if the pipeline was stopped.
  virtual void poll() = 0;
  /// Waits until everything sent has left.
  virtual void flush() = 0;
  /// Seconds spent in receive() since the start.
  double waited_seconds() const { return waited_seconds_; }

 protected:
  double waited_seconds_ = 0;
};

/// Thrown in the stages that end because another one failed.
class PipelineStopped : public std::exception {
 public:
  const char* what() const noexcept override { return "pipeline: another stage failed"; }
};

/// The place where the threads of a pipeline in one process leave payloads for each other.
class Exchange {
 public:
  void put(const Address& address, const Payload& payload);
  /// Waits for the payload. Throws PipelineStopped after stop().
  Payload take(const Address& address);
  void stop();
  void check_running();
  void restart();

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Address, Payload> waiting_;
  bool stopped_ = false;
};

/// Links between threads of one process: tensors change hands, nothing is copied.
class LocalLinks final : public Links {
 public:
  explicit LocalLinks(Exchange& exchange) : exchange_(exchange) {}
  void send(const Address& address, const Payload& payload) override;
  Payload receive(const Address& address) override;
  void poll() override { exchange_.check_running(); }
  void flush() override {}

 private:
  Exchange& exchange_;
};

/// Links between the ranks of a process group; stage s is on rank s % size.
///
/// A payload is three messages or more: how long its description is, the description (form, types,
/// shapes), both from the host, and its tensors; so shapes may change from one micro-batch to the
/// next.
class GroupLinks final : public Links {
 public:
  /// Receives tensors on `device`.
  explicit GroupLinks(ProcessGroup group, torch::Device device = torch::kCPU)
      : group_(std::move(group)), device_(device) {}
  void send(const Address& address, const Payload& payload) override;
  Payload receive(const Address& address) override;
  void poll() override;
  void flush() override;

 private:
  struct Sent {
    Work work;
    torch::Tensor tensor;
  };
  void begin_send(const torch::Tensor& tensor, int to);
  int rank_of(int stage) const { return stage % group_.size(); }
  int source_of(const Address& address) const;

  ProcessGroup group_;
  torch::Device device_;
  std::deque<Sent> sent_;
  std::map<Address, Payload> early_;
};

}  // namespace lockstep
