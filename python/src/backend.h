#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "works.h"
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/work_queue.h"
#include "lockstep/core/progress_thread.h"

namespace lockstep::host {
class HostBackend;
}

namespace lockstep::python {

/// Carries the collectives of a group of Python's torch.distributed by those of Lockstep: through
/// shared memory within a host, by Gloo between hosts.
///
/// Asynchronous collectives are carried out by a thread of the group, in the order of the calls;
/// the others in the thread that calls, unless some are still before them. Tensors of all types and
/// layouts that ProcessGroup takes may be passed, and complex ones. What is wrong, late or lost is
/// thrown when the work is waited for.
class C10dBackend final : public c10d::Backend {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// Meets the other ranks at the store, which must be the group's own. Messages have its name.
  /// Throws Error if they cannot share memory, or do not come in time.
  static c10::intrusive_ptr<C10dBackend> create(
      const Store& store, int rank, int size, Milliseconds timeout, const std::string& name);

  C10dBackend(std::shared_ptr<lockstep::Backend> backend, Milliseconds timeout);
  ~C10dBackend() override;

  const std::string getBackendName() const override { return "lockstep"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(Milliseconds timeout) override;
  std::uint64_t getSequenceNumberForGroup() override { return number_; }
  void abort() override;
  /// Ends the threads of all groups: one that lets a tensor of Python's go while Python ends would
  /// abort the process.
  static void close_threads();
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const Store& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& options) override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
      const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
      const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(
      at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr gather(
      std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(
      Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
      const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
      std::vector<std::int64_t>& output_splits, std::vector<std::int64_t>& input_splits,
      const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(
      Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  /// A barrier whose failure names the ranks that have not come; those of each group do.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool waits_for_all) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  struct Call;
  class Thread;

  /// Bodies must not refer to this object, which may be gone when the last of them is carried out.
  template <typename CallOptions>
  WorkPtr start(Call call, const CallOptions& options, std::function<void()> body);
  WorkPtr start_message(c10d::OpType type, const Tensors& tensors, int peer, int tag);

  std::shared_ptr<lockstep::Backend> backend_;
  ProcessGroup group_{backend_};
  host::HostBackend* memory_;  ///< null where messages need nobody to move them
  c10::intrusive_ptr<Options> options_;
  std::atomic<std::uint64_t> number_ = 0;
  std::atomic<bool> has_new_message_ = false;
  /// Moves messages while this rank does something else.
  std::unique_ptr<ProgressThread> messages_;
  std::shared_ptr<Thread> thread_;  ///< ends first
};

}  // namespace lockstep::python
