#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/types.h>

#include "lockstep/comm/work.h"

namespace lockstep::python {

/// Returns a failure as Python is to see it, with what was being done before its message: groups
/// that cannot go on are DistBackendError, wrong arguments ValueError, all else RuntimeError.
std::exception_ptr for_python(const std::string& what, const std::exception_ptr& failure);

/// A collective of Python's, which its group carries out in the caller's thread or in its own. The
/// future's value is the list of results.
class CollectiveWork final : public c10d::Work {
 public:
  /// The facts by which messages and the profiler know a collective.
  struct Call {
    std::string group;
    int rank = 0;
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* name = "";  ///< as in `lockstep:all_reduce`
    std::uint64_t number = 0;
    std::vector<at::Tensor> inputs = {}, results = {};

    std::string describe() const;
  };

  explicit CollectiveWork(Call call);

  /// Does what there is to do; returns its failure, with which this work is to be ended.
  std::exception_ptr carry_out(std::function<void()> body);
  /// Ends it with a failure; null is success.
  void end(const std::exception_ptr& failure);

  std::vector<at::Tensor> result() override { return call_.results; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::uint64_t getSequencenumber() const override { return call_.number; }

 private:
  Call call_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// A message of Python's. Whoever waits for it, or asks for it, moves it.
class MessageWork final : public c10d::Work {
 public:
  MessageWork(int rank, c10d::OpType type, std::string what, lockstep::Work work,
      const std::vector<at::Tensor>& inputs);

  /// Does not wait for whoever does, since the caller may hold Python's interpreter.
  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  int sourceRank() const override;

 private:
  void end();

  std::string what_;
  std::mutex moving_;  ///< held as long as somebody waits
  lockstep::Work work_;
  int sender_ = -1;
  std::atomic<bool> has_ended_ = false;
};

}  // namespace lockstep::python
