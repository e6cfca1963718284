#include "lockstep/comm/device/staging_thread.h"

#include <chrono>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/StreamGuard.h>

#include "lockstep/comm/host/backoff.h"
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

}  // namespace

StagedCall::StagedCall(std::vector<StagedTensor> tensors, Begin begin, Turn turn)
    : tensors_(std::move(tensors)), begin_(std::move(begin)), turn_(turn) {
  copy_to_host();
}

// Outputs, too, may be memory that the current stream has not done with.
void StagedCall::copy_to_host() {
  const at::NoGradGuard no_gradients;
  for (StagedTensor& tensor : tensors_) {
    if (!tensor.on_device.defined()) continue;
    tensor.on_host = pinned_like(tensor.on_device);
    const torch::Device device = tensor.on_device.device();
    if (!side_) {
      side_ = side_stream(device);
      wait_for(*side_, current_stream(device));
    }
    if (!tensor.is_input) continue;
    const c10::StreamGuard guard(*side_);
    tensor.on_host.copy_(tensor.on_device, /*non_blocking=*/true);
  }
  if (side_) arrived_ = recorded(*side_);
}

bool StagedCall::try_to_finish() {
  if (!work_.done()) return false;
  work_.wait();
  const at::NoGradGuard no_gradients;
  for (const StagedTensor& tensor : tensors_) {
    if (!tensor.is_output || !tensor.on_device.defined()) continue;
    const c10::StreamGuard guard(*side_);
    tensor.on_device.copy_(tensor.on_host, /*non_blocking=*/true);
    tensor.on_device.record_stream(*side_);
  }
  if (side_) returned_ = recorded(*side_);
  return true;
}

void StagedCall::end(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  ended_ = true;
  ended_changed_.notify_all();
}

bool StagedCall::poll() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void StagedCall::wait() {
  std::unique_lock lock(mutex_);
  ended_changed_.wait(lock, [this] { return ended_; });
  if (failure_) std::rethrow_exception(failure_);
  if (returned_) returned_->block(current_stream(returned_->device()));
}

StagingThread::~StagingThread() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    added_.notify_all();
  }
  thread_.join();
}

void StagingThread::add(std::shared_ptr<StagedCall> call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(call));
  added_.notify_all();
}

// Returns false when the thread is to end.
bool StagingThread::take_new(Calls& waiting, Calls& receiving, bool is_idle) {
  std::unique_lock lock(mutex_);
  if (is_idle) added_.wait(lock, [this] { return stopped_ || !calls_.empty(); });
  for (; !calls_.empty(); calls_.pop_front()) {
    const bool is_received = calls_.front()->turn_ == StagedCall::Turn::kReceived;
    (is_received ? receiving : waiting).push_back(std::move(calls_.front()));
  }
  return !stopped_;
}

// In the order of the calls, which is the same on all ranks.
bool StagingThread::begin_arrived(Calls& waiting, Calls& begun) {
  bool has_begun = false;
  for (; !waiting.empty(); waiting.pop_front()) {
    try {
      if (!waiting.front()->has_arrived()) break;
      waiting.front()->begin();
      begun.push_back(waiting.front());
    } catch (...) {  // also a device that has failed
      waiting.front()->end(std::current_exception());
    }
    has_begun = true;
  }
  return has_begun;
}

bool StagingThread::end_done(Calls& begun) {
  return std::erase_if(begun, [](const std::shared_ptr<StagedCall>& call) {
    try {
      if (!call->try_to_finish()) return false;
      call->end(nullptr);
    } catch (...) {
      call->end(std::current_exception());
    }
    return true;
  }) > 0;
}

void StagingThread::run() {
  Calls waiting, receiving, begun;
  Clock::time_point last_progress = Clock::now();
  while (take_new(waiting, receiving, waiting.empty() && receiving.empty() && begun.empty())) {
    const bool has_begun = begin_arrived(waiting, begun),
               receives = begin_arrived(receiving, begun);
    if (end_done(begun) || has_begun || receives) last_progress = Clock::now();
    if (Clock::now() - last_progress > kSpin || host::core_is_contested())
      std::this_thread::sleep_for(kPause);
  }
  const auto closed = std::make_exception_ptr(CommError("the group was closed"));
  for (Calls* calls : {&waiting, &receiving, &begun})
    for (const auto& call : *calls) call->end(closed);
}

}  // namespace lockstep
