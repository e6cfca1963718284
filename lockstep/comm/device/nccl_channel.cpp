#include "lockstep/comm/device/nccl_channel.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep::nccl {
namespace {

UniqueId agreed_id(Backend& host) {
  UniqueId id{};
  if (host.rank() == 0) check_result(api().get_unique_id(&id), "nccl: ncclGetUniqueId");
  const torch::Tensor bytes = at::empty({sizeof id.bytes}, on_host(torch::kByte));
  std::memcpy(bytes.mutable_data_ptr(), id.bytes, sizeof id.bytes);
  host.broadcast(bytes, 0).wait();
  std::memcpy(id.bytes, bytes.const_data_ptr(), sizeof id.bytes);
  return id;
}

}  // namespace

void check_result(Result result, const std::string& what, Communicator* communicator) {
  if (result == Result::kSuccess || result == Result::kInProgress) return;
  const char* const more = communicator == nullptr ? "" : api().last_error(communicator);
  throw CommError(concat(what, ": ", api().error_text(result),
      more == nullptr || *more == '\0' ? "" : concat(" (", more, ")")));
}

/// A call whose kernel may not have ended.
struct Channel::Call {
  std::string what;
  c10::Event ended;
  Clock::time_point began;
};

class Channel::CallState final : public Work::State {
 public:
  CallState(std::shared_ptr<Channel> channel, std::shared_ptr<Call> call)
      : channel_(std::move(channel)), call_(std::move(call)) {}

  bool poll() override { return channel_->is_aborted() || call_->ended.query(); }

  // The current stream waits, not the host.
  void wait() override {
    channel_->throw_if_aborted(call_->what);
    call_->ended.block(current_stream(channel_->device_));
  }

 private:
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<Call> call_;
};

Channel::Channel(Backend& host, torch::Device device, std::string name)
    : name_(std::move(name)), device_(device), stream_(side_stream(device)) {
  const UniqueId id = agreed_id(host);
  const c10::DeviceGuard guard(device);
  check_result(api().init_rank(&communicator_, host.size(), id, host.rank()),
      concat("nccl: rank ", host.rank(), " of ", host.size(), " on ", device.str(),
          " could not join the others"));
}

Channel::~Channel() { abort("the group was closed"); }

// NCCL stops the kernels of a communicator that is aborted, and those of the last calls may not
// have run: whoever waits for a call makes a stream wait, not the host.
void Channel::close(std::chrono::milliseconds patience) {
  constexpr auto kPause = std::chrono::microseconds(100);
  const auto end = Clock::now() + patience;
  while (is_under_way() && async_error().empty() && Clock::now() < end)
    std::this_thread::sleep_for(kPause);
  abort("the group was closed");
}

bool Channel::is_under_way() {
  const std::lock_guard lock(mutex_);
  if (!reason_.empty()) return false;
  forget_ended();
  return !under_way_.empty();
}

Work Channel::call(
    const char* what, const std::vector<torch::Tensor>& tensors, const Enqueue& enqueue) {
  const std::lock_guard lock(mutex_);
  if (!reason_.empty()) throw CommError(concat(what, ": ", reason_));
  forget_ended();
  const c10::DeviceGuard guard(device_);
  wait_for(stream_, current_stream(device_));
  void* const stream = c10::impl::VirtualGuardImpl(device_.type()).getStreamNativeHandle(stream_);
  check_result(enqueue(communicator_, stream), concat("nccl: ", what), communicator_);
  for (const torch::Tensor& tensor : tensors)
    if (tensor.defined()) tensor.record_stream(stream_);
  auto call = std::make_shared<Call>(Call{what, c10::Event(device_.type()), Clock::now()});
  call->ended.record(stream_);
  under_way_.push_back(call);
  return Work(std::make_shared<CallState>(shared_from_this(), std::move(call)));
}

void Channel::abort(const std::string& reason, bool is_timeout) {
  const std::lock_guard lock(mutex_);
  if (!reason_.empty()) return;
  reason_ = reason;
  timed_out_ = is_timeout;
  if (communicator_ != nullptr) api().abort(std::exchange(communicator_, nullptr));
}

void Channel::watch(std::chrono::milliseconds timeout) {
  std::string reason = async_error();
  bool is_late = false;
  if (reason.empty()) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) forget_ended();
    is_late = !under_way_.empty() && Clock::now() - under_way_.front()->began > timeout;
    if (is_late)
      reason = concat(name_, ": ", under_way_.front()->what, " on ", device_.str(),
          " timed out after ", std::chrono::duration<double>(timeout).count(),
          " s; another rank is late, or makes other calls");
  }
  if (!reason.empty()) abort(reason, is_late);
}

std::string Channel::async_error() {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return "";
  Result result = Result::kSuccess;
  api().async_error(communicator_, &result);
  if (result == Result::kSuccess || result == Result::kInProgress) return "";
  return concat(name_, ": ", api().error_text(result), "; another rank may be lost");
}

// The stream keeps their order.
void Channel::forget_ended() {
  const auto first = std::find_if(under_way_.begin(), under_way_.end(),
      [](const std::shared_ptr<Call>& call) { return !call->ended.query(); });
  under_way_.erase(under_way_.begin(), first);
}

bool Channel::is_aborted() const {
  const std::lock_guard lock(mutex_);
  return !reason_.empty();
}

void Channel::throw_if_aborted(const std::string& what) const {
  const std::lock_guard lock(mutex_);
  if (reason_.empty()) return;
  const std::string text = concat(what, ": ", reason_);
  if (timed_out_) throw TimeoutError(text);
  throw CommError(text);
}

}  // namespace lockstep::nccl
