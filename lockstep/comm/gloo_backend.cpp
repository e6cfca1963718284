#include "lockstep/comm/gloo_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lockstep/comm/call_limit.h"
#include "lockstep/comm/gloo_loop.h"
#include "lockstep/comm/host/collective.h"
#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/comm/work_queue.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/net/endpoint.h"

namespace lockstep {
namespace {

using Tensors = std::vector<torch::Tensor>;
using Gloo = c10d::ProcessGroupGloo;
using GlooWork = c10::intrusive_ptr<c10d::Work>;
using std::chrono::milliseconds;

constexpr int kTagOfAbort = std::numeric_limits<int>::max();

c10d::ReduceOp c10d_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return c10d::ReduceOp::SUM;  // divided afterwards: Gloo has no mean
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kAnd:
      return c10d::ReduceOp::BAND;
    case ReduceOp::kOr:
      return c10d::ReduceOp::BOR;
    case ReduceOp::kXor:
      return c10d::ReduceOp::BXOR;
  }
  throw InvalidArgument("gloo: unknown reduce operation");
}

// Says whether Gloo's own reduction does what the host's kernels do. Its min and max lose a NaN, or
// keep it, by the order of the ranks; it rounds 16-bit sums at each step, and divides them too late
// for a mean; other types it does not know.
bool gloo_reduces(at::ScalarType type, ReduceOp op) {
  switch (type) {
    case torch::kFloat:
    case torch::kDouble:
      return op != ReduceOp::kMin && op != ReduceOp::kMax;
    case torch::kChar:
    case torch::kByte:
    case torch::kInt:
    case torch::kLong:
      return true;
    default:
      return false;
  }
}

// Reduces the rows, one of each rank, as ranks on one host do.
void reduce_rows(const torch::Tensor& result, const torch::Tensor& rows, ReduceOp op) {
  if (result.numel() == 0) return;
  std::vector<const void*> inputs;
  for (const torch::Tensor& row : rows.unbind(0)) inputs.push_back(row.data_ptr());
  void* const output = result.data_ptr();
  reduce::best_kernel()({host::reduce_element(result.scalar_type()).value(), op, inputs.data(),
      static_cast<int>(inputs.size()), &output, 1, static_cast<std::size_t>(result.numel())});
}

// What is only moved goes as bytes: c10d's Gloo knows few types. A single element may have any
// stride.
torch::Tensor as_bytes(const torch::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}).view(torch::kByte);
}

torch::Tensor rows_like(const torch::Tensor& tensor, int rows) {
  return torch::empty({rows, tensor.numel()}, tensor.options());
}

Tensors pieces_of(const torch::Tensor& whole, int count) {
  return whole.view({count, -1}).unbind(0);
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// Gloo's messages begin with a file of its source and go on with advice and a backtrace.
std::string in_short(const std::string& message) {
  const std::string text =
      message.substr(0, std::min(message.find('\n'), message.find(". This is typically")));
  const auto source = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return source == std::string::npos ? text : text.substr(source + 2);
}

[[noreturn]] void throw_comm_error(const std::string& text) {
  if (has(text, "imed out")) throw TimeoutError(text);
  throw CommError(text);
}

/// Throws CommError, or TimeoutError, with the first line of c10d's message.
[[noreturn]] void rethrow_as_comm_error(const std::string& what, const std::exception& error) {
  const std::string first = in_short(error.what());
  if (has(first, "Application timeout"))
    throw TimeoutError(concat(what, ": other work of this rank in the group has timed out"));
  const bool closed =
      has(first, "closed by peer") || has(first, "reset by peer") || has(first, "roken pipe");
  throw_comm_error(concat(
      what, closed ? ": another rank has ended or given up, or is out of reach: " : ": ", first));
}

class GlooBackend;

/// A call that c10d has begun.
struct C10dCall {
  std::string what;  ///< for messages
  GlooWork work;
  std::weak_ptr<GlooBackend> group;        ///< a work that fails gives it up: others wait for it
  std::function<void()> finish = nullptr;  ///< runs once, when the caller has waited
};

[[noreturn]] void fail(const C10dCall& call, const std::exception& error);

void wait_for(C10dCall& call, std::chrono::milliseconds timeout = kNoTimeout) {
  try {
    call.work->wait(timeout);
  } catch (const std::exception& error) {
    fail(call, error);
  }
  if (call.finish) std::exchange(call.finish, nullptr)();
}

/// c10d carries it out in a thread of its own, with its deadline.
class CollectiveWork : public Work::State {
 public:
  explicit CollectiveWork(C10dCall call) : call_(std::move(call)) {}

  bool poll() override { return call_.work->isCompleted(); }
  void wait() override { wait_for(call_); }

 private:
  C10dCall call_;
};

/// c10d sees that a message has passed only inside of its wait(), so from the first time that
/// somebody asks, a thread waits.
class MessageWork : public Work::State {
 public:
  MessageWork(C10dCall call, std::chrono::milliseconds timeout)
      : call_(std::move(call)), timeout_(timeout) {}
  MessageWork(const MessageWork&) = delete;
  MessageWork& operator=(const MessageWork&) = delete;

  // Without the abort its thread would go on waiting, until the deadline.
  ~MessageWork() override {
    if (waiter_.joinable() && !ended_) call_.work->abort();
  }

  bool poll() override {
    if (!ended_ && !waiter_.joinable()) waiter_ = std::jthread([this] { wait_here(); });
    return ended_;
  }

  void wait() override {
    if (waiter_.joinable()) waiter_.join();
    if (!ended_) wait_here();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Once: a second wait of c10d's would be for a second message.
  void wait_here() {
    try {
      wait_for(call_, timeout_);
    } catch (...) {
      failure_ = std::current_exception();
    }
    ended_ = true;
  }

  C10dCall call_;
  std::chrono::milliseconds timeout_;
  std::exception_ptr failure_;
  std::atomic<bool> ended_ = false;
  std::jthread waiter_;  // the last member, so that it is joined first
};

c10::intrusive_ptr<Gloo::Options> settings_of(const GlooOptions& options) {
  auto settings = Gloo::Options::create(options.timeout);
  const BatchThreads loop;  // Note [Gloo's loop]
  if (const auto interface = environment(kInterfaceVariable)) {
    const std::string obstacle = obstacle_of_interface(*interface);
    check(obstacle.empty(), "gloo: ", kInterfaceVariable, "=", *interface, " ", obstacle);
    settings->devices.push_back(Gloo::createDeviceForInterface(*interface));
  } else if (!options.hostname.empty()) {
    check_loopback("gloo", options.hostname);
    settings->devices.push_back(Gloo::createDeviceForHostname(options.hostname));
  } else {
    settings->devices.push_back(Gloo::createDefaultDevice());
  }
  settings->threads = options.threads;
  return settings;
}

class GlooBackend : public Backend, public std::enable_shared_from_this<GlooBackend> {
 public:
  GlooBackend(const Store& store, int rank, int size, const GlooOptions& options)
      : Backend(rank, size),
        store_(store),
        options_(options),
        group_(store, rank, size, settings_of(options)) {}
  ~GlooBackend() override {
    if (!queue_.is_idle()) abort(concat("rank ", rank(), " left the group with unfinished work"));
  }

  std::string name() const override { return "gloo"; }
  /// Gives the group up, from any thread: then all that is under way fails, on all ranks. The first
  /// reason stays.
  void abort(const std::string& reason) override;
  /// Returns why it was given up; empty while it was not.
  std::string abort_reason() const {
    const std::lock_guard lock(reason_mutex_);
    return reason_;
  }
  milliseconds timeout() const override { return options_.timeout; }
  milliseconds limit() const { return CallLimit::of_this_thread().value_or(options_.timeout); }
  void set_timeout(milliseconds timeout) override;

 protected:
  Work begin(const CollectiveCall& call) override;
  std::shared_ptr<Backend> make_subgroup(const std::vector<int>& members) override;

 private:
  using Finish = std::function<void()>;

  /// Begins a collective, after the reductions that are under way in pieces: c10d numbers the calls
  /// of a group, and all ranks must make them in the same order.
  Work begin_in_order(const char* what, const CollectiveCall& call, Finish finish = nullptr);
  Work begin_now(const char* what, const CollectiveCall& call, Finish finish = nullptr) {
    return Work(std::make_shared<CollectiveWork>(c10d_call(what, call, std::move(finish))));
  }
  C10dCall c10d_call(const char* what, const CollectiveCall& call, Finish finish = nullptr);
  GlooWork start(const CollectiveCall& call);
  Finish after_sum(const torch::Tensor& sum, ReduceOp op) const {
    if (op != ReduceOp::kMean || !sum.defined()) return nullptr;
    return [sum, size = size_] { sum.div_(size); };
  }
  Work reduce_here(const torch::Tensor& tensor, ReduceOp op);
  void reduce_in_pieces(const torch::Tensor& tensor, ReduceOp op);

  Store connection_to_store() const;

  Store store_;
  GlooOptions options_;
  mutable std::mutex reason_mutex_;
  std::string reason_;
  std::mutex calls_;  ///< c10d takes one at a time; an abort may come from any thread
  Gloo group_;
  LoopPolicy loop_;
  int subgroups_ = 0;
  WorkQueue queue_{[this](const std::string& reason) { abort(reason); }};  ///< ends first
};

[[noreturn]] void fail(const C10dCall& call, const std::exception& error) {
  const auto group = call.group.lock();
  const std::string aborted = group ? group->abort_reason() : "";
  if (!aborted.empty()) throw_comm_error(concat(call.what, ": ", aborted));
  try {
    rethrow_as_comm_error(call.what, error);
  } catch (const CommError& failure) {
    if (group) group->abort(failure.what());
    throw;
  }
}

// A receive that runs out of time makes Gloo fail all that is under way and close its connections,
// so that the other ranks fail too. c10d's own way to close them leaves what is under way here
// waiting until its deadline, and the group's destructor with it.
void GlooBackend::abort(const std::string& reason) {
  {
    const std::lock_guard lock(reason_mutex_);
    if (!reason_.empty()) return;
    reason_ = reason;
  }
  const std::lock_guard lock(calls_);
  const PipeSignalBlock block;
  for (int peer = 0; peer < size(); ++peer) {
    Tensors nothing = {torch::zeros({1}, on_host(torch::kByte))};
    try {
      if (peer == rank()) continue;
      group_.recv(nothing, peer, kTagOfAbort)->wait(std::chrono::milliseconds(1));
    } catch (const std::exception&) {  // as intended, or the connection was closed before
    }
  }
}

// LibTorch renamed this call between 2.11 and 2.15.
template <typename Group>
auto all_to_all_on(Group& group, torch::Tensor& output, torch::Tensor& input) {
  std::vector<std::int64_t> even;
  if constexpr (requires { group.all_to_all_single(output, input, even, even); }) {
    return group.all_to_all_single(output, input, even, even);
  } else {
    return group.alltoall_base(output, input, even, even);
  }
}

C10dCall GlooBackend::c10d_call(const char* what, const CollectiveCall& call, Finish finish) {
  const std::lock_guard lock(calls_);
  const PipeSignalBlock block;
  const std::string reason = abort_reason();
  if (!reason.empty()) throw CommError(concat(what, ": ", reason));
  loop_.adapt();
  group_.setTimeout(limit());
  try {
    return {what, start(call), weak_from_this(), std::move(finish)};
  } catch (const std::exception& error) {
    rethrow_as_comm_error(what, error);
  }
}

GlooWork GlooBackend::start(const CollectiveCall& call) {
  Tensors inputs, outputs;
  std::vector<Tensors> pieces;
  const auto rooted = [&](auto settings) {
    settings.rootRank = call.root;
    return settings;
  };
  switch (call.kind) {
    case Operation::kAllReduce:
      outputs = {call.output};
      return group_.allreduce(outputs, {.reduceOp = c10d_op(call.op)});
    case Operation::kReduce: {
      inputs = {call.input};
      auto settings = rooted(c10d::ReduceOptions());
      settings.reduceOp = c10d_op(call.op);
      return group_.reduce(inputs, settings);
    }
    case Operation::kBroadcast:
      inputs = {as_bytes(call.tensor())};
      return group_.broadcast(inputs, rooted(c10d::BroadcastOptions()));
    case Operation::kAllGather:
      pieces = {pieces_of(as_bytes(call.output), size_)};
      inputs = {as_bytes(call.input)};
      return group_.allgather(pieces, inputs);
    case Operation::kGather:
      if (rank_ == call.root) pieces = {pieces_of(as_bytes(call.output), size_)};
      inputs = {as_bytes(call.input)};
      return group_.gather(pieces, inputs, rooted(c10d::GatherOptions()));
    case Operation::kScatter:
      if (rank_ == call.root) pieces = {pieces_of(as_bytes(call.input), size_)};
      outputs = {as_bytes(call.output)};
      return group_.scatter(outputs, pieces, rooted(c10d::ScatterOptions()));
    case Operation::kAllToAll: {
      torch::Tensor to = as_bytes(call.output), from = as_bytes(call.input);
      return all_to_all_on(group_, to, from);
    }
    case Operation::kSend:
      inputs = {call.input};
      return group_.send(inputs, call.peer, call.tag);
    case Operation::kRecv:
      outputs = {call.output};
      return group_.recv(outputs, call.peer, call.tag);
    default:
      return group_.barrier();
  }
}

Work GlooBackend::begin_in_order(const char* what, const CollectiveCall& call, Finish finish) {
  if (queue_.is_idle()) return begin_now(what, call, std::move(finish));
  return queue_.add([=, this] { begin_now(what, call, finish).wait(); });
}

Work GlooBackend::begin(const CollectiveCall& call) {
  if (call.is_message())
    return Work(std::make_shared<MessageWork>(c10d_call(call.name(), call), limit()));
  if (call.kind == Operation::kReduceScatter) {
    const torch::Tensor rows = rows_like(call.output, size_);
    return begin_in_order(call.name(),
        {.kind = Operation::kAllToAll, .output = rows, .input = call.input},
        [output = call.output, rows, op = call.op] { reduce_rows(output, rows, op); });
  }
  if (!call.reduces()) return begin_in_order(call.name(), call);
  CollectiveCall reduction = call;
  // The other ranks' tensors become scratch space; they must stay as they were.
  if (!call.output.defined()) reduction.input = call.input.clone();
  if (!gloo_reduces(call.input.scalar_type(), call.op))
    return reduce_here(reduction.input, call.op);
  return begin_in_order(call.name(), reduction, after_sum(call.output, call.op));
}

// Of a short tensor, or between two, all is sent to all: that is one step, and no more bytes than
// in pieces. Else each rank reduces a piece, which takes a thread that waits for both steps.
Work GlooBackend::reduce_here(const torch::Tensor& tensor, ReduceOp op) {
  constexpr std::size_t kShort = std::size_t{64} << 10;
  if (size_ > 2 && tensor.nbytes() * static_cast<std::size_t>(size_) > kShort)
    return queue_.add([=, this] { reduce_in_pieces(tensor, op); });
  const torch::Tensor rows = rows_like(tensor, size_);
  return begin_in_order("all_reduce",
      {.kind = Operation::kAllGather, .output = rows, .input = tensor},
      [=] { reduce_rows(tensor, rows, op); });
}

// As many bytes as in Gloo's ring.
void GlooBackend::reduce_in_pieces(const torch::Tensor& tensor, ReduceOp op) {
  const std::int64_t length = (tensor.numel() + size() - 1) / size();
  torch::Tensor whole = tensor.view(-1);
  if (length * size() != tensor.numel()) {
    whole = torch::empty({length * size()}, tensor.options());
    std::memcpy(whole.data_ptr(), tensor.data_ptr(), tensor.nbytes());
  }
  const torch::Tensor own = pieces_of(whole, size())[static_cast<std::size_t>(rank())];
  const torch::Tensor rows = rows_like(own, size());
  begin_now("all_reduce", {.kind = Operation::kAllToAll, .output = rows, .input = whole}, [&] {
    reduce_rows(own, rows, op);
  }).wait();
  begin_now("all_reduce", {.kind = Operation::kAllGather, .output = whole, .input = own}).wait();
  if (whole.data_ptr() != tensor.data_ptr())
    std::memcpy(tensor.data_ptr(), whole.data_ptr(), tensor.nbytes());
}

std::shared_ptr<Backend> GlooBackend::make_subgroup(const std::vector<int>& members) {
  const int own = place_among(members, rank());
  const std::string prefix = concat("subgroup-", ++subgroups_, "-of-", members.front());
  const Store store = c10::make_intrusive<c10d::PrefixStore>(prefix, connection_to_store());
  return make_gloo_backend(store, own, static_cast<int>(members.size()), options_);
}

// A store takes one call at a time, and a call may wait for another rank: of two threads that split
// two groups, each would keep the other from setting what the first one's peer waits for.
Store GlooBackend::connection_to_store() const {
  try {
    return store_->clone();
  } catch (const std::exception& error) {
    rethrow_as_comm_error("subgroup", error);
  }
}

void GlooBackend::set_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(calls_);  // its collectives may be begun by another thread
  options_.timeout = timeout;
  group_.setTimeout(timeout);
}

}  // namespace

std::shared_ptr<Backend> make_gloo_backend(
    const Store& store, int rank, int size, const GlooOptions& options) {
  const PipeSignalBlock block;  // Gloo's threads start here
  try {
    return std::make_shared<GlooBackend>(store, rank, size, options);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const std::exception& error) {
    rethrow_as_comm_error(
        concat("gloo: rank ", rank, " could not connect to the other ranks"), error);
  }
}

}  // namespace lockstep
