#include "lockstep/comm/device/nccl_channel.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/comm/store.h"
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

// Of a rank that is missing, NCCL says nothing.
Result wait_until_joined(Communicator* communicator, std::chrono::milliseconds patience) {
  constexpr auto kPause = std::chrono::milliseconds(1);
  const auto end = std::chrono::steady_clock::now() + patience;
  Result state = Result::kInProgress;
  while (state == Result::kInProgress && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPause);
    check_result(api().async_error(communicator, &state), "nccl: ncclCommGetAsyncError");
  }
  return state;
}

double in_seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

// A thread of NCCL's takes some microseconds with a call, unless another rank is late.
void pause_since(std::chrono::steady_clock::time_point begin) {
  constexpr auto kShort = std::chrono::milliseconds(1);
  if (std::chrono::steady_clock::now() - begin < kShort) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace

void check_result(Result result, const std::string& what, Communicator* communicator) {
  if (is_taken(result)) return;
  const char* const more = api().last_error(communicator);
  throw CommError(concat(what, ": ", api().error_text(result),
      more == nullptr || *more == '\0' ? "" : concat(" (", more, ")")));
}

/// A call whose kernel may not have ended.
struct Channel::Call {
  std::string what;
  Clock::time_point began;
  c10::Event ended;
  std::vector<torch::Tensor> tensors;  // until it is launched
  bool is_launched = false;            // its kernel is on the stream, and its end recorded
};

class Channel::CallState final : public Work::State {
 public:
  CallState(std::shared_ptr<Channel> channel, std::shared_ptr<Call> call)
      : channel_(std::move(channel)), call_(std::move(call)) {}

  bool poll() override { return channel_->has_ended(*call_); }

  // The current stream waits; the host only until the kernel is on NCCL's.
  void wait() override {
    channel_->wait_until_launched(call_, call_->what);
    channel_->let_wait(*call_);
  }

 private:
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<Call> call_;
};

Channel::Channel(Backend& host, torch::Device device, std::string name)
    : name_(std::move(name)), device_(device), stream_(side_stream(device)) {
  const UniqueId id = agreed_id(host);
  const c10::DeviceGuard guard(device);
  const std::string failed = concat("nccl: rank ", host.rank(), " of ", host.size(), " on ",
      device.str(), " could not join the others");
  Config config;
  check_result(api().init_rank(&communicator_, host.size(), id, host.rank(), &config), failed);
  try {
    const Result joined = wait_until_joined(communicator_, host.timeout());
    check_result(joined, failed, communicator_);
    if (joined == Result::kInProgress)
      throw TimeoutError(concat(failed, " in ", in_seconds(host.timeout()), " s; one is missing"));
  } catch (...) {
    api().abort(std::exchange(communicator_, nullptr));
    throw;
  }
}

Channel::~Channel() { abort("the group was closed"); }

// NCCL stops the kernels of a communicator that is aborted, and those of the last calls may not
// have run: whoever waits for a call makes a stream wait, not the host. Other ranks may still read
// from this one's memory, so it must not be aborted after that either.
void Channel::close(std::chrono::milliseconds patience) try {
  constexpr auto kPause = std::chrono::microseconds(100);
  constexpr auto kLongest = std::chrono::seconds(5);  // as long as one that failed may keep others
  const auto end = Clock::now() + patience;
  while (is_under_way() && Clock::now() < end) std::this_thread::sleep_for(kPause);
  const c10::DeviceGuard guard(device_);
  if (is_finalized(std::min(end, Clock::now() + kLongest))) {
    const std::lock_guard lock(mutex_);
    reason_ = "the group was closed";
    api().destroy(std::exchange(communicator_, nullptr));
  }
  abort("the group was closed");
} catch (const std::exception& error) {
  abort(first_line(error));
}

bool Channel::is_finalized(Clock::time_point deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty() || !under_way_.empty() || !is_taken(api().finalize(communicator_)))
      return false;
  }
  Result state = Result::kInProgress;
  while (state == Result::kInProgress && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return false;
    api().async_error(communicator_, &state);
  }
  return state == Result::kSuccess;
}

bool Channel::is_under_way() {
  const std::lock_guard lock(mutex_);
  look();
  forget_ended();
  return reason_.empty() && !under_way_.empty();
}

Work Channel::call(
    const char* what, const std::vector<torch::Tensor>& tensors, const Enqueue& enqueue) {
  const std::lock_guard turn(turn_);
  wait_until_launched(last_, what);
  const std::lock_guard lock(mutex_);
  throw_if_given_up(what);
  forget_ended();
  const c10::DeviceGuard guard(device_);
  wait_for(stream_, current_stream(device_));
  void* const stream = c10::impl::VirtualGuardImpl(device_.type()).getStreamNativeHandle(stream_);
  check_result(enqueue(communicator_, stream), concat("nccl: ", what), communicator_);
  for (const torch::Tensor& tensor : tensors)
    if (tensor.defined()) tensor.record_stream(stream_);
  last_ = std::make_shared<Call>(
      Call{what, Clock::now(), c10::Event(device_.type()), tensors, /*is_launched=*/false});
  under_way_.push_back(last_);
  return Work(std::make_shared<CallState>(shared_from_this(), last_));
}

void Channel::wait_until_launched(const std::shared_ptr<Call>& call, const std::string& what) {
  const auto begin = Clock::now();
  while (call != nullptr && !is_launched(*call, what)) pause_since(begin);
}

bool Channel::is_launched(const Call& call, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!call.is_launched) look();
  throw_if_given_up(what);
  return call.is_launched;
}

bool Channel::has_ended(const Call& call) {
  const std::lock_guard lock(mutex_);
  if (!call.is_launched) look();
  return !reason_.empty() || (call.is_launched && call.ended.query());
}

void Channel::let_wait(const Call& call) {
  const std::lock_guard lock(mutex_);
  call.ended.block(current_stream(device_));
}

void Channel::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  give_up(reason);
}

void Channel::give_up(const std::string& reason, bool is_timeout) {
  if (!reason_.empty()) return;
  reason_ = reason;
  timed_out_ = is_timeout;
  if (communicator_ != nullptr) api().abort(std::exchange(communicator_, nullptr));
}

// A device that failed throws from each query: nobody waits in the watchdog's thread to hear it.
void Channel::watch(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  try {
    look();
    if (reason_.empty()) forget_ended();
  } catch (const std::exception& error) {
    return give_up(concat(name_, ": ", device_.str(), " failed: ", first_line(error)));
  }
  if (under_way_.empty() || Clock::now() - under_way_.front()->began <= timeout) return;
  give_up(concat(name_, ": ", under_way_.front()->what, " on ", device_.str(), " timed out after ",
              in_seconds(timeout), " s; another rank is late, or makes other calls"),
      /*is_timeout=*/true);
}

// How NCCL stands with the last call.
void Channel::look() {
  if (communicator_ == nullptr) return;
  Result state = Result::kSuccess;
  api().async_error(communicator_, &state);
  if (!is_taken(state))
    return give_up(concat(name_, ": ", api().error_text(state), "; another rank may be lost"));
  if (state == Result::kSuccess && last_ != nullptr && !last_->is_launched) mark_end(*last_);
}

void Channel::mark_end(Call& call) {
  call.ended.record(stream_);
  call.is_launched = true;
  call.tensors.clear();
}

// The stream keeps their order.
void Channel::forget_ended() {
  const auto first = std::find_if(under_way_.begin(), under_way_.end(),
      [](const std::shared_ptr<Call>& call) { return !call->is_launched || !call->ended.query(); });
  under_way_.erase(under_way_.begin(), first);
}

void Channel::throw_if_given_up(const std::string& what) const {
  if (reason_.empty()) return;
  const std::string text = concat(what, ": ", reason_);
  if (timed_out_) throw TimeoutError(text);
  throw CommError(text);
}

}  // namespace lockstep::nccl
