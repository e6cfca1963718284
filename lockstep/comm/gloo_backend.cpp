#include "lockstep/comm/gloo_backend.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lockstep/comm/c10d_work.h"
#include "lockstep/comm/gloo_loop.h"
#include "lockstep/comm/gloo_threads.h"
#include "lockstep/comm/hierarchy/turn_thread.h"
#include "lockstep/comm/host/collective.h"
#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/net/endpoint.h"

namespace lockstep {
namespace {

using Tensors = std::vector<torch::Tensor>;
using Gloo = c10d::ProcessGroupGloo;

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

class GlooBackend : public Backend,
                    public AbortableGroup,
                    public std::enable_shared_from_this<GlooBackend> {
 public:
  GlooBackend(const Store& store, int rank, int size, const GlooOptions& options);
  GlooBackend(const GlooBackend&) = delete;
  GlooBackend& operator=(const GlooBackend&) = delete;
  ~GlooBackend() override {
    if (!turns_.is_idle()) give_up(concat("rank ", rank(), " left the group with unfinished work"));
  }

  std::string name() const override { return "gloo"; }
  int rank() const override { return group_.getRank(); }
  int size() const override { return group_.getSize(); }
  bool carries(torch::Device device) const override { return device.is_cpu(); }
  bool sums_in_rank_order() const override { return size() <= 2; }

  Work all_reduce(const torch::Tensor& tensor, ReduceOp op) override;
  Work reduce(const torch::Tensor& tensor, int root, ReduceOp op) override;
  Work broadcast(const torch::Tensor& tensor, int root) override;
  Work all_gather(const torch::Tensor& output, const torch::Tensor& input) override;
  Work gather(const torch::Tensor& output, const torch::Tensor& input, int root) override;
  Work scatter(const torch::Tensor& output, const torch::Tensor& input, int root) override;
  Work reduce_scatter(
      const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) override;
  Work all_to_all(const torch::Tensor& output, const torch::Tensor& input) override;
  Work send(const torch::Tensor& tensor, int to, int tag) override;
  Work recv(const torch::Tensor& tensor, int from, int tag) override;
  Work barrier() override;

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members) override;
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options) override {
    return torch::empty({elements}, options);
  }
  void abort(const std::string& reason) override { give_up(reason); }
  std::chrono::milliseconds timeout() const override { return options_.timeout; }
  void set_timeout(std::chrono::milliseconds timeout) override;

 private:
  template <typename Begin>
  C10dCall call(const char* what, Begin begin, std::function<void()> finish = nullptr);
  template <typename Begin>
  Work begin_now(const char* what, Begin begin, std::function<void()> finish = nullptr) {
    return collective_work(call(what, std::move(begin), std::move(finish)));
  }
  /// Begins a collective, after the reductions that are under way in pieces: c10d numbers the calls
  /// of a group, and all ranks must make them in the same order.
  template <typename Begin>
  Work begin(const char* what, Begin begin, std::function<void()> finish = nullptr) {
    if (turns_.is_idle()) return begin_now(what, std::move(begin), std::move(finish));
    return turns_.add([=, this] { begin_now(what, begin, finish).wait(); });
  }
  std::function<void()> after_sum(const torch::Tensor& sum, ReduceOp op) const {
    if (op != ReduceOp::kMean) return nullptr;
    return [sum, size = size()] { sum.div_(size); };
  }
  Work all_reduce_here(const torch::Tensor& tensor, ReduceOp op);
  auto gathering(const torch::Tensor& output, const torch::Tensor& input);
  auto exchanging(const torch::Tensor& output, const torch::Tensor& input);
  void reduce_in_pieces(const torch::Tensor& tensor, ReduceOp op);

  void close_connections() override;
  Store connection_to_store() const;

  Store store_;
  GlooOptions options_;
  std::mutex calls_;  ///< c10d takes one at a time; an abort may come from any thread
  Gloo group_;
  LoopPolicy loop_;
  int subgroups_ = 0;
  hierarchy::TurnThread turns_;  ///< the last, so that it ends first
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

GlooBackend::GlooBackend(const Store& store, int rank, int size, const GlooOptions& options)
    : store_(store),
      options_(options),
      group_(store, rank, size, settings_of(options)),
      turns_([this](const std::string& reason) { give_up(reason); }) {}

template <typename Begin>
C10dCall GlooBackend::call(const char* what, Begin begin, std::function<void()> finish) {
  const std::lock_guard lock(calls_);
  const PipeSignalBlock block;
  const std::string reason = abort_reason();
  if (!reason.empty()) throw CommError(concat(what, ": ", reason));
  loop_.adapt();
  try {
    return {what, begin(), weak_from_this(), std::move(finish)};
  } catch (const std::exception& error) {
    rethrow_as_comm_error(what, error);
  }
}

// A receive that runs out of time makes Gloo fail all that is under way and close its connections,
// so that the other ranks fail too. c10d's own way to close them leaves what is under way here
// waiting until its deadline, and the group's destructor with it.
void GlooBackend::close_connections() {
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

auto GlooBackend::gathering(const torch::Tensor& output, const torch::Tensor& input) {
  return [this, to = pieces_of(as_bytes(output), size()), from = as_bytes(input)] {
    std::vector<Tensors> outputs = {to};
    Tensors inputs = {from};
    return group_.allgather(outputs, inputs);
  };
}

auto GlooBackend::exchanging(const torch::Tensor& output, const torch::Tensor& input) {
  return [this, to = as_bytes(output), from = as_bytes(input)] {
    torch::Tensor written = to, read = from;
    return all_to_all_on(group_, written, read);
  };
}

Work GlooBackend::all_reduce(const torch::Tensor& tensor, ReduceOp op) {
  if (!gloo_reduces(tensor.scalar_type(), op)) return all_reduce_here(tensor, op);
  const auto sum = [=, this] {
    Tensors tensors = {tensor};
    return group_.allreduce(tensors, {.reduceOp = c10d_op(op)});
  };
  return begin("all_reduce", sum, after_sum(tensor, op));
}

// Of a short tensor, or between two, all is sent to all: that is one step, and no more bytes than
// in pieces. Else each rank reduces a piece, which takes a thread that waits for both steps.
Work GlooBackend::all_reduce_here(const torch::Tensor& tensor, ReduceOp op) {
  constexpr std::size_t kShort = std::size_t{64} << 10;
  if (size() > 2 && tensor.nbytes() * static_cast<std::size_t>(size()) > kShort)
    return turns_.add([=, this] { reduce_in_pieces(tensor, op); });
  const torch::Tensor rows = rows_like(tensor, size());
  return begin("all_reduce", gathering(rows, tensor), [=] { reduce_rows(tensor, rows, op); });
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
  begin_now("all_reduce", exchanging(rows, whole), [&] { reduce_rows(own, rows, op); }).wait();
  begin_now("all_reduce", gathering(whole, own)).wait();
  if (whole.data_ptr() != tensor.data_ptr())
    std::memcpy(tensor.data_ptr(), whole.data_ptr(), tensor.nbytes());
}

Work GlooBackend::reduce(const torch::Tensor& tensor, int root, ReduceOp op) {
  // The other ranks' tensors become scratch space; they must stay as they were.
  const torch::Tensor sent = rank() == root ? tensor : tensor.clone();
  if (!gloo_reduces(tensor.scalar_type(), op)) return all_reduce_here(sent, op);
  const auto sum = [=, this] {
    Tensors tensors = {sent};
    c10d::ReduceOptions settings;
    settings.reduceOp = c10d_op(op);
    settings.rootRank = root;
    return group_.reduce(tensors, settings);
  };
  return begin("reduce", sum, rank() == root ? after_sum(tensor, op) : nullptr);
}

Work GlooBackend::broadcast(const torch::Tensor& tensor, int root) {
  return begin("broadcast", [this, root, bytes = as_bytes(tensor)] {
    Tensors sent = {bytes};
    c10d::BroadcastOptions settings;
    settings.rootRank = root;
    return group_.broadcast(sent, settings);
  });
}

Work GlooBackend::all_gather(const torch::Tensor& output, const torch::Tensor& input) {
  return begin("all_gather", gathering(output, input));
}

Work GlooBackend::gather(const torch::Tensor& output, const torch::Tensor& input, int root) {
  return begin("gather", [=, this] {
    std::vector<Tensors> outputs;
    if (rank() == root) outputs.push_back(pieces_of(as_bytes(output), size()));
    Tensors inputs = {as_bytes(input)};
    c10d::GatherOptions settings;
    settings.rootRank = root;
    return group_.gather(outputs, inputs, settings);
  });
}

Work GlooBackend::scatter(const torch::Tensor& output, const torch::Tensor& input, int root) {
  return begin("scatter", [=, this] {
    std::vector<Tensors> inputs;
    if (rank() == root) inputs.push_back(pieces_of(as_bytes(input), size()));
    Tensors outputs = {as_bytes(output)};
    c10d::ScatterOptions settings;
    settings.rootRank = root;
    return group_.scatter(outputs, inputs, settings);
  });
}

Work GlooBackend::reduce_scatter(
    const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) {
  const torch::Tensor rows = rows_like(output, size());
  return begin("reduce_scatter", exchanging(rows, input), [=] { reduce_rows(output, rows, op); });
}

Work GlooBackend::all_to_all(const torch::Tensor& output, const torch::Tensor& input) {
  return begin("all_to_all", exchanging(output, input));
}

Work GlooBackend::send(const torch::Tensor& tensor, int to, int tag) {
  Tensors sent = {tensor};
  return message_work(call("send", [&] { return group_.send(sent, to, tag); }), timeout());
}

Work GlooBackend::recv(const torch::Tensor& tensor, int from, int tag) {
  Tensors received = {tensor};
  return message_work(call("recv", [&] { return group_.recv(received, from, tag); }), timeout());
}

Work GlooBackend::barrier() {
  return begin("barrier", [this] { return group_.barrier(); });
}

std::shared_ptr<Backend> GlooBackend::subgroup(const std::vector<int>& members) {
  const auto own = std::find(members.begin(), members.end(), rank());
  check(own != members.end(), "subgroup: rank ", rank(), " is not among its members");
  const std::string prefix = concat("subgroup-", ++subgroups_, "-of-", members.front());
  const Store store = c10::make_intrusive<c10d::PrefixStore>(prefix, connection_to_store());
  return make_gloo_backend(
      store, static_cast<int>(own - members.begin()), static_cast<int>(members.size()), options_);
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
