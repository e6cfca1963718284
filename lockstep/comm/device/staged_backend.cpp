#include "lockstep/comm/device/staged_backend.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

#include "lockstep/comm/host/backoff.h"
#include "lockstep/comm/work.h"
#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"

namespace lockstep {
namespace {

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

using Tensors = std::vector<StagedTensor>;

StagedTensor in(const torch::Tensor& tensor) { return {.on_device = tensor, .is_input = true}; }
StagedTensor out(const torch::Tensor& tensor) { return {.on_device = tensor, .is_output = true}; }
StagedTensor both(const torch::Tensor& tensor) {
  return {.on_device = tensor, .is_input = true, .is_output = true};
}

class StagedBackend final : public Backend {
 public:
  StagedBackend(std::shared_ptr<Backend> host, torch::DeviceType type)
      : host_(std::move(host)), type_(type) {}

  std::string name() const override { return "staged"; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  bool carries(torch::Device device) const override { return device.type() == type_; }
  bool sums_in_rank_order() const override { return host_->sums_in_rank_order(); }
  std::optional<at::ScalarType> reduced_as(
      torch::Device, at::ScalarType type, ReduceOp op) const override {
    return host_->reduced_as(torch::kCPU, type, op);
  }

  Work all_reduce(const torch::Tensor& tensor, ReduceOp op) override {
    return add({both(tensor)},
        [this, op](const Tensors& staged) { return host_->all_reduce(staged[0].on_host, op); });
  }
  Work reduce(const torch::Tensor& tensor, int root, ReduceOp op) override {
    StagedTensor own = in(tensor);
    own.is_output = rank() == root;
    return add({own}, [this, root, op](const Tensors& staged) {
      return host_->reduce(staged[0].on_host, root, op);
    });
  }
  Work broadcast(const torch::Tensor& tensor, int root) override {
    return add({rank() == root ? in(tensor) : out(tensor)},
        [this, root](const Tensors& staged) { return host_->broadcast(staged[0].on_host, root); });
  }
  Work all_gather(const torch::Tensor& output, const torch::Tensor& input) override {
    return add({out(output), in(input)}, [this](const Tensors& staged) {
      return host_->all_gather(staged[0].on_host, staged[1].on_host);
    });
  }
  Work gather(const torch::Tensor& output, const torch::Tensor& input, int root) override {
    return add({out(output), in(input)}, [this, root](const Tensors& staged) {
      return host_->gather(staged[0].on_host, staged[1].on_host, root);
    });
  }
  Work scatter(const torch::Tensor& output, const torch::Tensor& input, int root) override {
    return add({out(output), in(input)}, [this, root](const Tensors& staged) {
      return host_->scatter(staged[0].on_host, staged[1].on_host, root);
    });
  }
  Work reduce_scatter(
      const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) override {
    return add({out(output), in(input)}, [this, op](const Tensors& staged) {
      return host_->reduce_scatter(staged[0].on_host, staged[1].on_host, op);
    });
  }
  Work all_to_all(const torch::Tensor& output, const torch::Tensor& input) override {
    return add({out(output), in(input)}, [this](const Tensors& staged) {
      return host_->all_to_all(staged[0].on_host, staged[1].on_host);
    });
  }
  Work send(const torch::Tensor& tensor, int to, int tag) override {
    return add({in(tensor)},
        [this, to, tag](const Tensors& staged) { return host_->send(staged[0].on_host, to, tag); });
  }
  Work recv(const torch::Tensor& tensor, int from, int tag) override {
    const auto begin = [this, from, tag](const Tensors& staged) {
      return host_->recv(staged[0].on_host, from, tag);
    };
    return add({out(tensor)}, begin, StagedCall::Turn::kReceived);
  }
  Work barrier() override {
    return add({}, [this](const Tensors&) { return host_->barrier(); });
  }

  // Between two collectives of `host`, as all ranks come here after the same calls.
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members) override {
    barrier().wait();
    return make_staged_backend(host_->subgroup(members), type_);
  }
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options) override {
    return torch::empty({elements}, options);
  }
  void abort(const std::string& reason) override { host_->abort(reason); }
  std::chrono::milliseconds timeout() const override { return host_->timeout(); }
  void set_timeout(std::chrono::milliseconds timeout) override { host_->set_timeout(timeout); }

 private:
  Work add(Tensors tensors, StagedCall::Begin begin,
      StagedCall::Turn turn = StagedCall::Turn::kAnyOther) {
    auto call = std::make_shared<StagedCall>(std::move(tensors), std::move(begin), turn);
    thread_.add(call);
    return Work(std::move(call));
  }

  std::shared_ptr<Backend> host_;
  torch::DeviceType type_;
  StagingThread thread_;  // the last, so that it ends first
};

}  // namespace

std::shared_ptr<Backend> make_staged_backend(
    std::shared_ptr<Backend> host, torch::DeviceType type) {
  return std::make_shared<StagedBackend>(std::move(host), type);
}

}  // namespace lockstep
