#include "lockstep/comm/gloo_backend.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lockstep/comm/c10d_work.h"
#include "lockstep/comm/gloo_threads.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/network/route.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

using Tensors = std::vector<torch::Tensor>;
using Gloo = c10d::ProcessGroupGloo;

constexpr int kTagOfAbort = std::numeric_limits<int>::max();

c10d::ReduceOp c10d_op(ReduceOp op) {
  switch (op) {
  case ReduceOp::kSum:
  case ReduceOp::kMean:
    return c10d::ReduceOp::SUM; // divided afterwards: Gloo has no mean
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

// Gloo has no 16-bit integers.
torch::Tensor widened(const torch::Tensor &tensor) {
  return tensor.scalar_type() == torch::kShort ? tensor.to(torch::kInt)
                                               : tensor;
}

Tensors pieces_of(const torch::Tensor &whole, int count) {
  return whole.view({count, -1}).unbind(0);
}

class GlooBackend : public Backend,
                    public AbortableGroup,
                    public std::enable_shared_from_this<GlooBackend> {
public:
  GlooBackend(const Store &store, int rank, int size,
              const GlooOptions &options);

  std::string name() const override { return "gloo"; }
  int rank() const override { return group_.getRank(); }
  int size() const override { return group_.getSize(); }
  bool carries(torch::Device device) const override { return device.is_cpu(); }
  bool sums_in_rank_order() const override { return size() <= 2; }

  Work all_reduce(const torch::Tensor &tensor, ReduceOp op) override;
  Work reduce(const torch::Tensor &tensor, int root, ReduceOp op) override;
  Work broadcast(const torch::Tensor &tensor, int root) override;
  Work all_gather(const torch::Tensor &output,
                  const torch::Tensor &input) override;
  Work gather(const torch::Tensor &output, const torch::Tensor &input,
              int root) override;
  Work scatter(const torch::Tensor &output, const torch::Tensor &input,
               int root) override;
  Work reduce_scatter(const torch::Tensor &output, const torch::Tensor &input,
                      ReduceOp op) override;
  Work all_to_all(const torch::Tensor &output,
                  const torch::Tensor &input) override;
  Work send(const torch::Tensor &tensor, int to, int tag) override;
  Work recv(const torch::Tensor &tensor, int from, int tag) override;
  Work barrier() override;

  std::shared_ptr<Backend> subgroup(const std::vector<int> &members) override;
  torch::Tensor empty(std::int64_t elements,
                      const torch::TensorOptions &options) override {
    return torch::empty({elements}, options);
  }
  void abort(const std::string &reason) override { give_up(reason); }
  std::chrono::milliseconds timeout() const override {
    return options_.timeout;
  }
  void set_timeout(std::chrono::milliseconds timeout) override;

private:
  template <typename Begin>
  C10dCall call(const char *what, Begin begin,
                std::function<void()> finish = nullptr);
  template <typename Begin>
  Work begin(const char *what, Begin begin,
             std::function<void()> finish = nullptr) {
    return collective_work(call(what, std::move(begin), std::move(finish)));
  }
  std::function<void()> after_reduction(const torch::Tensor &result,
                                        const torch::Tensor &sent,
                                        ReduceOp op) const;

  void close_connections() override;

  Store store_;
  GlooOptions options_;
  std::mutex
      calls_; ///< c10d takes one at a time; an abort may come from any thread
  Gloo group_;
  int subgroups_ = 0;
};

c10::intrusive_ptr<Gloo::Options> settings_of(const GlooOptions &options) {
  auto settings = Gloo::Options::create(options.timeout);
  const BatchThreads loop; // Note [Gloo's loop]
  if (const auto interface = environment(kInterfaceVariable)) {
    const std::string obstacle = obstacle_of_interface(*interface);
    check(obstacle.empty(), "gloo: ", kInterfaceVariable, "=", *interface, " ",
          obstacle);
    settings->devices.push_back(Gloo::createDeviceForInterface(*interface));
  } else if (!options.hostname.empty()) {
    check_loopback("gloo", options.hostname);
    settings->devices.push_back(
        Gloo::createDeviceForHostname(options.hostname));
  } else {
    settings->devices.push_back(Gloo::createDefaultDevice());
  }
  settings->threads = options.threads;
  return settings;
}

GlooBackend::GlooBackend(const Store &store, int rank, int size,
                         const GlooOptions &options)
    : store_(store), options_(options),
      group_(store, rank, size, settings_of(options)) {}

template <typename Begin>
C10dCall GlooBackend::call(const char *what, Begin begin,
                           std::function<void()> finish) {
  const std::lock_guard lock(calls_);
  const PipeSignalBlock block;
  const std::string reason = abort_reason();
  if (!reason.empty())
    throw CommError(concat(what, ": ", reason));
  try {
    return {what, begin(), weak_from_this(), std::move(finish)};
  } catch (const std::exception &error) {
    rethrow_as_comm_error(what, error);
  }
}

// A receive that runs out of time makes Gloo fail all that is under way and
// close its connections, so that the other ranks fail too. c10d's own way to
// close them leaves what is under way here waiting until its deadline, and the
// group's destructor with it.
void GlooBackend::close_connections() {
  const std::lock_guard lock(calls_);
  const PipeSignalBlock block;
  for (int peer = 0; peer < size(); ++peer) {
    Tensors nothing = {torch::zeros({1}, on_host(torch::kByte))};
    try {
      if (peer == rank())
        continue;
      group_.recv(nothing, peer, kTagOfAbort)
          ->wait(std::chrono::milliseconds(1));
    } catch (const std::exception
                 &) { // as intended, or the connection was closed before
    }
  }
}

// Divides sums into means and brings widened elements back.
std::function<void()> GlooBackend::after_reduction(const torch::Tensor &result,
                                                   const torch::Tensor &sent,
                                                   ReduceOp op) const {
  return [result, sent, op, size = size()]() mutable {
    if (op == ReduceOp::kMean)
      sent.div_(size);
    if (sent.data_ptr() != result.data_ptr())
      result.copy_(sent);
  };
}

Work GlooBackend::all_reduce(const torch::Tensor &tensor, ReduceOp op) {
  Tensors sent = {widened(tensor)};
  return begin(
      "all_reduce",
      [&] { return group_.allreduce(sent, {.reduceOp = c10d_op(op)}); },
      after_reduction(tensor, sent[0], op));
}

Work GlooBackend::reduce(const torch::Tensor &tensor, int root, ReduceOp op) {
  // Gloo uses the other ranks' tensors as scratch space; they must stay as they
  // were.
  Tensors sent = {rank() == root ? widened(tensor) : widened(tensor).clone()};
  c10d::ReduceOptions settings;
  settings.reduceOp = c10d_op(op);
  settings.rootRank = root;
  return begin(
      "reduce", [&] { return group_.reduce(sent, settings); },
      rank() == root ? after_reduction(tensor, sent[0], op) : nullptr);
}

Work GlooBackend::broadcast(const torch::Tensor &tensor, int root) {
  Tensors sent = {tensor};
  c10d::BroadcastOptions settings;
  settings.rootRank = root;
  return begin("broadcast", [&] { return group_.broadcast(sent, settings); });
}

Work GlooBackend::all_gather(const torch::Tensor &output,
                             const torch::Tensor &input) {
  std::vector<Tensors> outputs = {pieces_of(output, size())};
  Tensors inputs = {input.view(-1)};
  return begin("all_gather", [&] { return group_.allgather(outputs, inputs); });
}

Work GlooBackend::gather(const torch::Tensor &output,
                         const torch::Tensor &input, int root) {
  std::vector<Tensors> outputs;
  if (rank() == root)
    outputs.push_back(pieces_of(output, size()));
  Tensors inputs = {input.view(-1)};
  c10d::GatherOptions settings;
  settings.rootRank = root;
  return begin("gather",
               [&] { return group_.gather(outputs, inputs, settings); });
}

Work GlooBackend::scatter(const torch::Tensor &output,
                          const torch::Tensor &input, int root) {
  std::vector<Tensors> inputs;
  if (rank() == root)
    inputs.push_back(pieces_of(input, size()));
  Tensors outputs = {output.view(-1)};
  c10d::ScatterOptions settings;
  settings.rootRank = root;
  return begin("scatter",
               [&] { return group_.scatter(outputs, inputs, settings); });
}

// Gloo has no reduce-scatter: every rank reduces everything and keeps a piece.
Work GlooBackend::reduce_scatter(const torch::Tensor &output,
                                 const torch::Tensor &input, ReduceOp op) {
  Tensors sent = {widened(input).clone()};
  const torch::Tensor own =
      pieces_of(sent[0], size())[static_cast<std::size_t>(rank())];
  return begin(
      "reduce_scatter",
      [&] { return group_.allreduce(sent, {.reduceOp = c10d_op(op)}); },
      after_reduction(output.view(-1), own, op));
}

// LibTorch renamed this call between 2.11 and 2.15.
template <typename Group>
auto all_to_all_on(Group &group, torch::Tensor &output, torch::Tensor &input) {
  std::vector<std::int64_t> even;
  if constexpr (requires {
                  group.all_to_all_single(output, input, even, even);
                }) {
    return group.all_to_all_single(output, input, even, even);
  } else {
    return group.alltoall_base(output, input, even, even);
  }
}

Work GlooBackend::all_to_all(const torch::Tensor &output,
                             const torch::Tensor &input) {
  torch::Tensor to = output.view(-1), from = input.view(-1);
  return begin("all_to_all", [&] { return all_to_all_on(group_, to, from); });
}

Work GlooBackend::send(const torch::Tensor &tensor, int to, int tag) {
  Tensors sent = {tensor};
  return message_work(call("send", [&] { return group_.send(sent, to, tag); }),
                      timeout());
}

Work GlooBackend::recv(const torch::Tensor &tensor, int from, int tag) {
  Tensors received = {tensor};
  return message_work(
      call("recv", [&] { return group_.recv(received, from, tag); }),
      timeout());
}

Work GlooBackend::barrier() {
  return begin("barrier", [&] { return group_.barrier(); });
}

std::shared_ptr<Backend>
GlooBackend::subgroup(const std::vector<int> &members) {
  const auto own = std::find(members.begin(), members.end(), rank());
  check(own != members.end(), "subgroup: rank ", rank(),
        " is not among its members");
  const std::string prefix =
      concat("subgroup-", ++subgroups_, "-of-", members.front());
  const Store store = c10::make_intrusive<c10d::PrefixStore>(prefix, store_);
  return make_gloo_backend(store, static_cast<int>(own - members.begin()),
                           static_cast<int>(members.size()), options_);
}

void GlooBackend::set_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(
      calls_); // its collectives may be begun by another thread
  options_.timeout = timeout;
  group_.setTimeout(timeout);
}

} // namespace

std::shared_ptr<Backend> make_gloo_backend(const Store &store, int rank,
                                           int size,
                                           const GlooOptions &options) {
  const PipeSignalBlock block; // Gloo's threads start here
  try {
    return std::make_shared<GlooBackend>(store, rank, size, options);
  } catch (const InvalidArgument &) {
    throw;
  } catch (const std::exception &error) {
    rethrow_as_comm_error(
        concat("gloo: rank ", rank, " could not connect to the other ranks"),
        error);
  }
}

} // namespace lockstep
