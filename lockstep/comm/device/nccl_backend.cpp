#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/FunctionRef.h>

#include "lockstep/comm/device/device_backends.h"
#include "lockstep/comm/device/nccl_api.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace nccl {
namespace {

/// Says whether a call of NCCL's was taken: it may not be on its stream yet.
bool is_taken(Result result) { return result == Result::kSuccess || result == Result::kInProgress; }

/// Throws CommError with NCCL's text unless the call was taken.
void check_result(Result result, const std::string& what, Communicator* communicator = nullptr) {
  if (is_taken(result)) return;
  const char* const more = api().last_error(communicator);
  throw CommError(concat(what, ": ", api().error_text(result),
      more == nullptr || *more == '\0' ? "" : concat(" (", more, ")")));
}

// Note [Calls that do not block]
// The first message between two ranks, and the first collective of all, connects them: until the
// others come, NCCL would keep the caller. Two ranks that each send first would keep each other for
// good, and nothing could end it: no communicator may be aborted while a call of it runs. So
// communicators are made not to block. A call then returns at once, and NCCL goes on with it in a
// thread of its own. Until that says so, the kernel is not on the stream, so that the end of the
// call cannot be recorded, its tensors must be kept, and no other call may be made. Who makes the
// next call of a channel, or waits for this one, waits for that; the watchdog ends both. NCCL lets
// NCCL_COMM_BLOCKING=1 in the environment overrule this.

/// A communicator of NCCL and the stream that its kernels run on, in the order of the calls. What
/// it cannot do it says when the next call is made or waited for.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  /// Meets the other ranks by `host`, within its timeout. A collective.
  Channel(Backend& host, torch::Device device, std::string name);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  using Enqueue = c10::function_ref<Result(Communicator*, Stream)>;

  /// Enqueues what reads and writes these tensors, after what the current stream has been given;
  /// the call before must be on the stream by then. Throws CommError if the channel was given up.
  Work call(const char* what, const std::vector<torch::Tensor>& tensors, Enqueue enqueue);

  /// Gives up: kernels under way end, later calls and waits throw CommError with this reason, the
  /// first that was given. May be called by any thread.
  void abort(const std::string& reason);

  /// Leaves the other ranks once the kernels under way have ended; waits for them so long at most,
  /// and gives up otherwise.
  void close(std::chrono::milliseconds patience);

  /// Gives up if NCCL reports an error, or if the oldest call has been under way for longer than
  /// this.
  void watch(std::chrono::milliseconds timeout);

 private:
  struct Call;
  class CallState;
  using Clock = std::chrono::steady_clock;

  void wait_until_launched(const std::shared_ptr<Call>& call, const std::string& what);
  bool is_launched(const Call& call, const std::string& what);
  bool has_ended(const Call& call);
  void let_wait(const Call& call);
  bool is_under_way();
  bool is_finalized(Clock::time_point deadline);

  // With the mutex held.
  void look();
  void mark_end(Call& call);
  void forget_ended();
  void give_up(const std::string& reason, bool is_timeout = false);
  void throw_if_given_up(const std::string& what) const;

  std::string name_;
  torch::Device device_;
  c10::Stream stream_;
  std::mutex turn_;  // of who makes a call
  std::mutex mutex_;
  Communicator* communicator_ = nullptr;
  std::vector<std::shared_ptr<Call>> under_way_;
  std::shared_ptr<Call> last_;
  std::string reason_;
  bool timed_out_ = false;
};

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
  abort(first_line(error.what()));
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

Work Channel::call(const char* what, const std::vector<torch::Tensor>& tensors, Enqueue enqueue) {
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
    return give_up(concat(name_, ": ", device_.str(), " failed: ", first_line(error.what())));
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

}  // namespace
}  // namespace nccl

namespace {

using nccl::api, nccl::Channel, nccl::Communicator, nccl::is_taken, nccl::Result, nccl::Stream,
    nccl::Type;
using torch::Tensor;

constexpr auto kBetweenLooks = std::chrono::milliseconds(200);

Type type_of(const char* collective, const Tensor& tensor) {
  constexpr std::pair<at::ScalarType, Type> kTypes[] = {{torch::kChar, Type::kInt8},
      {torch::kByte, Type::kUint8}, {torch::kInt, Type::kInt32}, {torch::kLong, Type::kInt64},
      {torch::kHalf, Type::kFloat16}, {torch::kFloat, Type::kFloat32},
      {torch::kDouble, Type::kFloat64}, {torch::kBFloat16, Type::kBfloat16}};
  for (const auto& [ours, theirs] : kTypes)
    if (ours == tensor.scalar_type()) return theirs;
  throw InvalidArgument(concat(collective, ": NCCL does not reduce numbers of type ",
      c10::toString(tensor.scalar_type()), "; convert them, or reduce them on the host"));
}

nccl::Operation operation_of(const char* collective, ReduceOp op) {
  using enum nccl::Operation;
  constexpr std::pair<ReduceOp, nccl::Operation> kOperations[] = {{ReduceOp::kSum, kSum},
      {ReduceOp::kMean, kMean}, {ReduceOp::kProduct, kProduct}, {ReduceOp::kMin, kMin},
      {ReduceOp::kMax, kMax}};
  for (const auto& [ours, theirs] : kOperations)
    if (ours == op) return theirs;
  throw InvalidArgument(concat(collective, ": NCCL has no bitwise operations; reduce on the host"));
}

std::size_t count_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

char* piece_of(const Tensor& whole, int rank, int ranks) {
  return static_cast<char*>(whole.mutable_data_ptr()) +
         whole.nbytes() / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(rank);
}

/// Calls within one group of NCCL's, so that they run beside each other; ends it also by an error.
template <typename Calls>
Result in_group(const Calls& calls) {
  Result result = api().group_start();
  if (!is_taken(result)) return result;
  const Result of_calls = calls();
  result = api().group_end();
  return is_taken(of_calls) ? result : of_calls;
}

class NcclBackend final : public Backend {
 public:
  NcclBackend(Backend& host, torch::Device device)
      : Backend(host.rank(), host.size()),
        device_(device),
        collectives_(std::make_shared<Channel>(host, device, "nccl")),
        messages_(size_ > 2 ? 4 : 2) {
    timeout_ = host.timeout();
    for (auto& channel : messages_)
      channel = std::make_shared<Channel>(host, device, "nccl, messages");
    watchdog_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }

  ~NcclBackend() override {
    watchdog_.request_stop();
    looked_.notify_all();
    if (std::uncaught_exceptions() > 0) return;  // nobody may come to what this rank began
    for (Channel* channel : channels()) channel->close(timeout_);
  }

  std::string name() const override { return "nccl"; }
  bool carries(torch::Device device) const override { return device == device_; }
  // NCCL has no whole numbers of 16 bits; in 32, their last 16 bits come out the same.
  std::optional<at::ScalarType> reduced_as(
      torch::Device device, at::ScalarType type, ReduceOp op) const override {
    return type == torch::kShort ? torch::kInt : Backend::reduced_as(device, type, op);
  }
  void abort(const std::string& reason) override {
    for (Channel* channel : channels()) channel->abort(reason);
  }

 protected:
  Work begin(const CollectiveCall& call) override {
    if (call.kind == Operation::kBarrier)
      return all_reduce(
          at::zeros({1}, torch::dtype(torch::kFloat).device(device_)), ReduceOp::kSum);
    const Type type = call.reduces() ? type_of(call.name(), call.input) : Type::kUint8;
    const nccl::Operation operation =
        call.reduces() ? operation_of(call.name(), call.op) : nccl::Operation::kSum;
    return channel_of(call).call(call.name(),
        call.has_one_tensor() ? std::vector{call.tensor()} : std::vector{call.output, call.input},
        [&](Communicator* all, Stream stream) {
          return enqueue(call, type, operation, all, stream);
        });
  }
  std::shared_ptr<Backend> make_subgroup(const std::vector<int>&) override {
    throw Error("nccl: a subgroup is made from one of the host's groups");
  }

 private:
  Result enqueue(const CollectiveCall& call, Type type, nccl::Operation operation,
      Communicator* all, Stream stream) const {
    const Tensor &to = call.output, &from = call.input;
    switch (call.kind) {
      case Operation::kAllReduce:
        return api().all_reduce(from.const_data_ptr(), to.mutable_data_ptr(), count_of(to), type,
            operation, all, stream);
      case Operation::kReduce: {
        void* const data = from.mutable_data_ptr();
        return api().reduce(data, data, count_of(from), type, operation, call.root, all, stream);
      }
      case Operation::kReduceScatter:
        return api().reduce_scatter(from.const_data_ptr(), to.mutable_data_ptr(), count_of(to),
            type, operation, all, stream);
      case Operation::kBroadcast: {
        void* const data = call.tensor().mutable_data_ptr();
        return api().broadcast(data, data, call.tensor().nbytes(), type, call.root, all, stream);
      }
      case Operation::kAllGather:
        return api().all_gather(
            from.const_data_ptr(), to.mutable_data_ptr(), from.nbytes(), type, all, stream);
      case Operation::kSend:
        return send_bytes(from.const_data_ptr(), from.nbytes(), call.peer, all, stream);
      case Operation::kRecv:
        return recv_bytes(to.mutable_data_ptr(), to.nbytes(), call.peer, all, stream);
      default:
        return in_group([&] { return exchange_pieces(call, all, stream); });
    }
  }

  Result exchange_pieces(const CollectiveCall& call, Communicator* all, Stream stream) const {
    const bool is_root = rank_ == call.root;
    const Tensor &to = call.output, &from = call.input;
    if (call.kind == Operation::kGather) {
      Result result = send_bytes(from.const_data_ptr(), from.nbytes(), call.root, all, stream);
      for (int peer = 0; is_root && peer < size_ && is_taken(result); ++peer)
        result = recv_bytes(piece_of(to, peer, size_), from.nbytes(), peer, all, stream);
      return result;
    }
    if (call.kind == Operation::kScatter) {
      Result result = recv_bytes(to.mutable_data_ptr(), to.nbytes(), call.root, all, stream);
      for (int peer = 0; is_root && peer < size_ && is_taken(result); ++peer)
        result = send_bytes(piece_of(from, peer, size_), to.nbytes(), peer, all, stream);
      return result;
    }
    const std::size_t bytes = from.nbytes() / static_cast<std::size_t>(size_);
    Result result = Result::kSuccess;
    for (int peer = 0; peer < size_ && is_taken(result); ++peer) {
      result = send_bytes(piece_of(from, peer, size_), bytes, peer, all, stream);
      if (is_taken(result))
        result = recv_bytes(piece_of(to, peer, size_), bytes, peer, all, stream);
    }
    return result;
  }

  static Result send_bytes(
      const void* data, std::size_t bytes, int to, Communicator* all, Stream stream) {
    return api().send(data, bytes, Type::kUint8, to, all, stream);
  }
  static Result recv_bytes(
      void* data, std::size_t bytes, int from, Communicator* all, Stream stream) {
    return api().recv(data, bytes, Type::kUint8, from, all, stream);
  }

  // Note [Messages over NCCL]
  // A kernel that sends ends when the other rank receives, and those of one stream run one after
  // the other. So messages to higher and to lower ranks have a communicator and a stream each, and
  // neighbours that send to each other do not wait for each other; nor do they where they connect
  // (Note [Calls that do not block]). Either has one for what ranks of an even number send, and one
  // for the odd ones: so what a stage of a pipeline receives from one neighbour does not wait for
  // what it computes before it sends that to the other. NCCL knows no tags: messages between two
  // ranks must be received in the order in which they are sent. It does not promise either that
  // kernels of several communicators run beside each other on one GPU; where they fit there they
  // do, and PyTorch takes that for granted, too.
  // Of two ranks the even one sends up, and the odd one down.
  Channel& channel_of(const CollectiveCall& call) {
    if (!call.is_message()) return *collectives_;
    const bool is_sent = call.kind == Operation::kSend;
    const int from = is_sent ? rank_ : call.peer, to = is_sent ? call.peer : rank_;
    const std::size_t odd = from % 2 == 0 ? 0 : 1, down = size_ > 2 && from > to ? 2 : 0;
    return *messages_[odd + down];
  }

  std::vector<Channel*> channels() {
    std::vector<Channel*> all = {collectives_.get()};
    for (const auto& channel : messages_) all.push_back(channel.get());
    return all;
  }

  void watch(const std::stop_token& stop) {
    const c10::DeviceGuard guard(device_);
    std::mutex mutex;
    std::unique_lock lock(mutex);
    while (!looked_.wait_for(lock, stop, kBetweenLooks, [&] { return stop.stop_requested(); }))
      for (Channel* channel : channels()) channel->watch(timeout_);
  }

  torch::Device device_;
  std::shared_ptr<Channel> collectives_;
  std::vector<std::shared_ptr<Channel>> messages_;
  std::condition_variable_any looked_;
  std::jthread watchdog_;  // the last, so that it ends first
};

}  // namespace

std::shared_ptr<Backend> make_nccl_backend(Backend& host, torch::Device device) {
  return std::make_shared<NcclBackend>(host, device);
}

}  // namespace lockstep
