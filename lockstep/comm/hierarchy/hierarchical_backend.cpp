#include "lockstep/comm/hierarchy/hierarchical_backend.h"

#include <functional>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/comm/hierarchy/courier.h"
#include "lockstep/comm/hierarchy/levels.h"
#include "lockstep/comm/hierarchy/turn_thread.h"
#include "lockstep/comm/host_backends.h"
#include "lockstep/comm/single_backend.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using hierarchy::Levels;
using hierarchy::Nodes;

/// A message whose failure fails the group.
class GuardedMessage : public Work::State {
 public:
  GuardedMessage(Work message, std::weak_ptr<Backend> group)
      : message_(std::move(message)), group_(std::move(group)) {}

  bool poll() override { return message_.done(); }

  void wait() override {
    try {
      message_.wait();
    } catch (const std::exception& error) {
      if (const auto group = group_.lock()) group->abort(error.what());
      throw;
    }
  }

 private:
  Work message_;
  std::weak_ptr<Backend> group_;
};

class HierarchicalBackend final : public Backend,
                                  public std::enable_shared_from_this<HierarchicalBackend> {
 public:
  explicit HierarchicalBackend(Levels levels);
  HierarchicalBackend(const HierarchicalBackend&) = delete;
  HierarchicalBackend& operator=(const HierarchicalBackend&) = delete;
  ~HierarchicalBackend() override;

  std::string name() const override { return "hierarchical"; }
  int rank() const override { return levels_.rank; }
  int size() const override { return levels_.nodes.size(); }
  bool carries(torch::Device device) const override { return device.is_cpu(); }
  // Within a node it is always so; between more than two, Gloo goes round.
  bool sums_in_rank_order() const override { return levels_.nodes.count() <= 2; }
  // The sum of a node may be beyond 16 bits where that of all is not. Where nodes have as many
  // ranks each, a mean is the mean of theirs.
  std::optional<at::ScalarType> reduced_as(
      torch::Device device, at::ScalarType type, ReduceOp op) const override {
    const bool is_16_bit = type == torch::kHalf || type == torch::kBFloat16;
    const bool is_sum = op == ReduceOp::kSum || op == ReduceOp::kProduct ||
                        (op == ReduceOp::kMean && !levels_.nodes.are_equal());
    return is_16_bit && is_sum ? torch::kFloat : Backend::reduced_as(device, type, op);
  }

  Work all_reduce(const torch::Tensor& tensor, ReduceOp op) override {
    return turns_.add([=, this] { hierarchy::all_reduce(levels_, tensor, op); });
  }
  Work reduce(const torch::Tensor& tensor, int root, ReduceOp op) override {
    return turns_.add([=, this] { hierarchy::reduce(levels_, tensor, root, op); });
  }
  Work broadcast(const torch::Tensor& tensor, int root) override {
    return turns_.add([=, this] { hierarchy::broadcast(levels_, tensor, root); });
  }
  Work all_gather(const torch::Tensor& output, const torch::Tensor& input) override {
    return turns_.add([=, this] { hierarchy::all_gather(levels_, output, input); });
  }
  Work reduce_scatter(
      const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) override {
    return turns_.add([=, this] { hierarchy::reduce_scatter(levels_, output, input, op); });
  }
  Work barrier() override {
    return turns_.add([this] { hierarchy::barrier(levels_); });
  }

  // What each pair of ranks exchanges crosses the network in any case.
  Work gather(const torch::Tensor& output, const torch::Tensor& input, int root) override {
    return turns_.add([=, this] { levels_.all->gather(output, input, root).wait(); });
  }
  Work scatter(const torch::Tensor& output, const torch::Tensor& input, int root) override {
    return turns_.add([=, this] { levels_.all->scatter(output, input, root).wait(); });
  }
  Work all_to_all(const torch::Tensor& output, const torch::Tensor& input) override {
    return turns_.add([=, this] { levels_.all->all_to_all(output, input).wait(); });
  }

  Work send(const torch::Tensor& tensor, int to, int tag) override;
  Work recv(const torch::Tensor& tensor, int from, int tag) override;

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members) override;
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options) override;

  void abort(const std::string& reason) override;
  std::chrono::milliseconds timeout() const override { return levels_.all->timeout(); }
  void set_timeout(std::chrono::milliseconds timeout) override;

 private:
  bool is_neighbour(int peer) const { return levels_.nodes.node_of(peer) == levels_.node(); }
  Work guarded(Work message) {
    return Work(std::make_shared<GuardedMessage>(std::move(message), weak_from_this()));
  }

  Levels levels_;
  hierarchy::Courier courier_;
  hierarchy::TurnThread turns_;  // the last, so that it ends first
};

bool advance_messages(Backend& within) {
  auto* const memory = dynamic_cast<host::HostBackend*>(&within);
  return memory != nullptr && memory->advance_messages();
}

HierarchicalBackend::HierarchicalBackend(Levels levels)
    : levels_(std::move(levels)),
      courier_([this] { return advance_messages(*levels_.within); }),
      turns_([this](const std::string& reason) { abort(reason); }) {}

HierarchicalBackend::~HierarchicalBackend() {
  if (!turns_.is_idle()) abort(concat("rank ", rank(), " left the group with unfinished work"));
}

Work HierarchicalBackend::send(const torch::Tensor& tensor, int to, int tag) {
  if (!is_neighbour(to)) return guarded(levels_.all->send(tensor, to, tag));
  Work message = levels_.within->send(tensor, levels_.nodes.index_of(to), tag);
  courier_.call();
  return guarded(std::move(message));
}

Work HierarchicalBackend::recv(const torch::Tensor& tensor, int from, int tag) {
  if (!is_neighbour(from)) return guarded(levels_.all->recv(tensor, from, tag));
  Work message = levels_.within->recv(tensor, levels_.nodes.index_of(from), tag);
  courier_.call();
  return guarded(std::move(message));
}

torch::Tensor HierarchicalBackend::empty(
    std::int64_t elements, const torch::TensorOptions& options) {
  torch::Tensor made;
  turns_.add([&] { made = levels_.within->empty(elements, options); }).wait();
  return made;
}

// Every level hears of it: a rank waits in one of them, and which one depends on the moment.
void HierarchicalBackend::abort(const std::string& reason) {
  for (const auto& level : {levels_.within, levels_.across, levels_.all}) level->abort(reason);
}

void HierarchicalBackend::set_timeout(std::chrono::milliseconds timeout) {
  for (const auto& level : {levels_.within, levels_.across, levels_.all})
    level->set_timeout(timeout);
}

/// Completes the levels of a group: `within` and `all` are there.
std::shared_ptr<Backend> backend_of(Levels levels) {
  if (levels.nodes.count() == 1) return levels.within;
  if (!levels.nodes.are_levels()) return levels.all;
  if (levels.within->size() == 1) levels.within = std::make_shared<SingleBackend>();
  levels.across = levels.all->subgroup(levels.nodes.ranks_across(levels.index()));
  return std::make_shared<HierarchicalBackend>(std::move(levels));
}

// All ranks of a node call this at once, be their new groups within the node or not.
std::shared_ptr<Backend> HierarchicalBackend::subgroup(const std::vector<int>& members) {
  std::vector<int> neighbours;
  for (const int member : members)
    if (is_neighbour(member)) neighbours.push_back(levels_.nodes.index_of(member));
  std::shared_ptr<Backend> made;
  turns_
      .add([&] {
        const auto all = levels_.all->subgroup(members);
        made = backend_of({.nodes = levels_.nodes.among(members),
            .rank = all->rank(),
            .within = levels_.within->subgroup(neighbours),
            .across = nullptr,
            .all = all});
      })
      .wait();
  return made;
}

std::shared_ptr<Backend> share_memory(
    const Store& store, const Nodes& nodes, int rank, std::chrono::milliseconds timeout) {
  const auto& neighbours = nodes.ranks_of(nodes.node_of(rank));
  const int size = static_cast<int>(neighbours.size());
  if (size == 1) return std::make_shared<SingleBackend>();
  const int index = nodes.index_of(rank);
  return ShmBackend::create(index, size, timeout, [&, round = 0](const std::string& text) mutable {
    const std::string topic = concat("node-", neighbours.front(), "-", ++round);
    return exchange_texts(store, topic, index, size, text, timeout);
  });
}

// The ranks of another node know nothing of a failure on this one.
std::shared_ptr<Backend> share_memory_everywhere(
    const Store& store, const Nodes& nodes, int rank, std::chrono::milliseconds timeout) {
  std::string failure;
  std::shared_ptr<Backend> within;
  try {
    within = share_memory(store, nodes, rank, timeout);
  } catch (const MemoryNotShared& error) {
    failure = concat(
        "on the host of rank ", nodes.ranks_of(nodes.node_of(rank)).front(), ": ", error.what());
  }
  for (const auto& text : exchange_texts(store, "memory", rank, nodes.size(), failure, timeout)) {
    if (!text.empty()) throw MemoryNotShared(text);
  }
  return within;
}

}  // namespace

std::shared_ptr<Backend> make_hierarchical_backend(const Store& store, int rank,
    const std::vector<std::string>& hosts, const GlooOptions& options) {
  const Nodes nodes(hosts);
  const auto within = share_memory_everywhere(store, nodes, rank, options.timeout);
  if (nodes.count() == 1) return within;
  GlooOptions wide = options;
  wide.threads = 2;  // while one chunk is added up, the next one is on the way
  const auto all = make_gloo_backend(
      c10::make_intrusive<c10d::PrefixStore>("all", store), rank, nodes.size(), wide);
  return backend_of(
      {.nodes = nodes, .rank = rank, .within = within, .across = nullptr, .all = all});
}

}  // namespace lockstep
