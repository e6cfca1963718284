#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

#include "lockstep/comm/device/device_backends.h"
#include "lockstep/comm/host/backoff.h"
#include "lockstep/comm/work_queue.h"
#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Long enough to leave the core to others, short beside a copy.
constexpr auto kPause = std::chrono::microseconds(50);
constexpr auto kSpin = std::chrono::microseconds(200);

c10::Event recorded(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

torch::Tensor pinned_like(const torch::Tensor& tensor) {
  return at::empty_like(tensor, tensor.options().device(torch::kCPU).pinned_memory(true));
}

/// A call on its way through the host: copied there, carried, copied back.
class StagedCall : public PromisedWork {
 public:
  /// Begins to copy the input to the host, after what the current stream has been given.
  explicit StagedCall(const CollectiveCall& call) : on_device_(call), on_host_(call) {
    if (call.tensor().defined()) copy_to_host(call.tensor().device());
  }

  bool has_arrived() { return !arrived_ || arrived_->query(); }
  void begin(Backend& host) { work_ = host.run(on_host_); }
  /// Copies the output back if the host has it; returns whether it has.
  bool try_to_finish();

  /// Then the current stream waits for the output.
  void wait() override {
    PromisedWork::wait();
    if (returned_) returned_->block(current_stream(returned_->device()));
  }

 private:
  void copy_to_host(torch::Device device);

  CollectiveCall on_device_, on_host_;
  std::optional<c10::Stream> side_;     // on which the copies run; nothing for a barrier
  std::optional<c10::Event> arrived_;   // of the input, on the host
  std::optional<c10::Event> returned_;  // of the output, on the device
  Work work_;
};

// The output, too, may be memory that the current stream has not done with.
void StagedCall::copy_to_host(torch::Device device) {
  const at::NoGradGuard no_gradients;
  side_ = side_stream(device);
  wait_for(*side_, current_stream(device));
  if (on_device_.output.defined()) on_host_.output = pinned_like(on_device_.output);
  if (on_device_.input.defined()) {
    const bool is_in_place = on_device_.input.is_same(on_device_.output);
    on_host_.input = is_in_place ? on_host_.output : pinned_like(on_device_.input);
    const c10::StreamGuard guard(*side_);
    on_host_.input.copy_(on_device_.input, /*non_blocking=*/true);
  }
  arrived_ = recorded(*side_);
}

bool StagedCall::try_to_finish() {
  if (!work_.done()) return false;
  work_.wait();
  if (!side_) return true;
  const at::NoGradGuard no_gradients;
  if (on_device_.output.defined()) {
    const c10::StreamGuard guard(*side_);
    on_device_.output.copy_(on_host_.output, /*non_blocking=*/true);
    on_device_.output.record_stream(*side_);
  }
  returned_ = recorded(*side_);
  return true;
}

class StagedBackend final : public Backend {
 public:
  StagedBackend(std::shared_ptr<Backend> host, torch::DeviceType type)
      : Backend(host->rank(), host->size()), host_(std::move(host)), type_(type) {}
  ~StagedBackend() override;

  std::string name() const override { return "staged"; }
  bool carries(torch::Device device) const override { return device.type() == type_; }
  bool sums_in_rank_order() const override { return host_->sums_in_rank_order(); }
  std::optional<at::ScalarType> reduced_as(
      torch::Device, at::ScalarType type, ReduceOp op) const override {
    return host_->reduced_as(torch::kCPU, type, op);
  }
  void abort(const std::string& reason) override { host_->abort(reason); }
  std::chrono::milliseconds timeout() const override { return host_->timeout(); }
  void set_timeout(std::chrono::milliseconds timeout) override { host_->set_timeout(timeout); }

 protected:
  Work begin(const CollectiveCall& call) override;
  // Between two collectives of `host`, as all ranks come here after the same calls.
  std::shared_ptr<Backend> make_subgroup(const std::vector<int>& members) override {
    barrier().wait();
    return make_staged_backend(host_->subgroup(members), type_);
  }

 private:
  using Calls = std::deque<std::shared_ptr<StagedCall>>;

  ProgressThread::Pause advance();
  bool begin_arrived(Calls& calls);
  bool end_done();

  std::shared_ptr<Backend> host_;
  torch::DeviceType type_;
  std::mutex mutex_;
  // Calls that have not begun wait for each other. A message that is received waits for those
  // alone: its sender does not wait for what this rank has yet to compute, and send.
  Calls new_to_receive_, new_others_;  // with the mutex held
  Calls to_receive_, others_, begun_;  // of the thread
  Clock::time_point last_progress_ = Clock::now();
  ProgressThread thread_{[this] { return advance(); }};  // ends first
};

StagedBackend::~StagedBackend() {
  thread_.stop();
  const auto closed = std::make_exception_ptr(CommError("the group was closed"));
  for (Calls* calls : {&new_others_, &new_to_receive_, &others_, &to_receive_, &begun_})
    for (const auto& call : *calls) call->end(closed);
}

Work StagedBackend::begin(const CollectiveCall& call) {
  auto staged = std::make_shared<StagedCall>(call);
  {
    const std::lock_guard lock(mutex_);
    (call.kind == Operation::kRecv ? new_to_receive_ : new_others_).push_back(staged);
  }
  thread_.wake();
  return Work(std::move(staged));
}

// Begins the calls of each queue in their order, which is the same on all ranks, when their inputs
// have arrived, and ends each when it is done.
ProgressThread::Pause StagedBackend::advance() {
  {
    const std::lock_guard lock(mutex_);
    for (; !new_to_receive_.empty(); new_to_receive_.pop_front())
      to_receive_.push_back(std::move(new_to_receive_.front()));
    for (; !new_others_.empty(); new_others_.pop_front())
      others_.push_back(std::move(new_others_.front()));
  }
  const bool has_begun = begin_arrived(others_), receives = begin_arrived(to_receive_);
  if (end_done() || has_begun || receives) last_progress_ = Clock::now();
  if (others_.empty() && to_receive_.empty() && begun_.empty()) return std::nullopt;
  const bool is_slow = Clock::now() - last_progress_ > kSpin || host::core_is_contested();
  return is_slow ? kPause : std::chrono::microseconds(0);
}

bool StagedBackend::begin_arrived(Calls& calls) {
  bool has_begun = false;
  for (; !calls.empty(); calls.pop_front()) {
    try {
      if (!calls.front()->has_arrived()) break;
      calls.front()->begin(*host_);
      begun_.push_back(calls.front());
    } catch (...) {  // also a device that has failed
      calls.front()->end(std::current_exception());
    }
    has_begun = true;
  }
  return has_begun;
}

bool StagedBackend::end_done() {
  return std::erase_if(begun_, [](const std::shared_ptr<StagedCall>& call) {
    try {
      if (!call->try_to_finish()) return false;
      call->end(nullptr);
    } catch (...) {
      call->end(std::current_exception());
    }
    return true;
  }) > 0;
}

}  // namespace

std::shared_ptr<Backend> make_staged_backend(
    std::shared_ptr<Backend> host, torch::DeviceType type) {
  return std::make_shared<StagedBackend>(std::move(host), type);
}

}  // namespace lockstep
