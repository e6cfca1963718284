#include "lockstep/comm/hierarchy/hierarchical_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/comm/hierarchy/chunks.h"
#include "lockstep/comm/host_backends.h"
#include "lockstep/comm/work_queue.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace hierarchy {

Nodes::Nodes(const std::vector<std::string>& hosts) {
  std::map<std::string, int> numbers;
  for (const std::string& host : hosts) {
    const int node = numbers.emplace(host, count()).first->second;
    if (node == count()) ranks_.emplace_back();
    auto& neighbours = ranks_[static_cast<std::size_t>(node)];
    index_of_.push_back(static_cast<int>(neighbours.size()));
    neighbours.push_back(size());
    node_of_.push_back(node);
  }
}

std::vector<int> Nodes::ranks_across(int index) const {
  std::vector<int> ranks;
  for (const auto& neighbours : ranks_) {
    if (index < static_cast<int>(neighbours.size()))
      ranks.push_back(neighbours[static_cast<std::size_t>(index)]);
  }
  return ranks;
}

int Nodes::fewest() const {
  const auto shorter = [](const auto& one, const auto& other) { return one.size() < other.size(); };
  return static_cast<int>(std::min_element(ranks_.begin(), ranks_.end(), shorter)->size());
}

Nodes Nodes::among(const std::vector<int>& members) const {
  std::vector<std::string> hosts;
  for (const int member : members) hosts.push_back(std::to_string(node_of(member)));
  return Nodes(hosts);
}

namespace {

constexpr std::chrono::microseconds kFirstPause(50), kLongestPause(1000);
constexpr std::int64_t kShort = std::int64_t{64} << 10;  // bytes

/// The groups through which a rank reaches the others: those of its node, and the other nodes.
///
/// Note [Lanes]
/// As many ranks of each node as all nodes have carry data between the nodes, each a part of it of
/// its own, together with the ranks of the same index on the other nodes. A node's link carries the
/// same bytes as if one rank did all, but the work of the sockets is spread over the cores, and
/// while one rank adds up what has come, another one sends.
struct Levels {
  Nodes nodes;
  int rank;
  std::shared_ptr<Backend> within;  ///< the ranks of this node, in shared memory
  std::shared_ptr<Backend> across;  ///< the ranks of this index, one a node, in the nodes' order
  std::shared_ptr<Backend> all;     ///< all ranks, over the network

  int node() const { return nodes.node_of(rank); }
  int index() const { return nodes.index_of(rank); }
};

std::int64_t bytes_in(const torch::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

torch::Tensor part_of(const torch::Tensor& whole, const Part& part) {
  return whole.narrow(0, part.begin, part.count);
}

void copy_bytes(const torch::Tensor& to, const torch::Tensor& from) {
  if (to.data_ptr() == from.data_ptr() || from.numel() == 0) return;
  std::memcpy(to.data_ptr(), from.data_ptr(), static_cast<std::size_t>(bytes_in(from)));
}

torch::Tensor copy_of(const torch::Tensor& tensor) {
  torch::Tensor copy = torch::empty_like(tensor);
  copy_bytes(copy, tensor);
  return copy;
}

// In slices that LibTorch does not spread over threads: this thread would get a team of its own.
void divide(const torch::Tensor& tensor, int divisor) {
  constexpr std::int64_t kSlice = 16384;
  for (std::int64_t begin = 0; begin < tensor.numel(); begin += kSlice)
    tensor.narrow(0, begin, std::min(kSlice, tensor.numel() - begin)).div_(divisor);
}

/// A tensor cut into chunks, of which each lane carries a part.
class LanedTensor {
 public:
  LanedTensor(const Levels& levels, const torch::Tensor& tensor)
      : levels_(levels),
        flat_(tensor.view(-1)),
        lanes_(lanes_for(bytes_in(tensor), levels.nodes.fewest())),
        chunks_(cut_into_chunks(
            flat_.numel(), static_cast<std::size_t>(flat_.element_size()), lanes_)) {}

  std::size_t chunks() const { return chunks_.size(); }
  torch::Tensor chunk(std::size_t number) const { return part_of(flat_, chunks_[number]); }
  /// Returns what this rank carries of a chunk; empty if it carries nothing.
  torch::Tensor own(std::size_t number) const {
    return levels_.index() < lanes_ ? part(number, levels_.index()) : part_of(flat_, {});
  }

  /// Leaves the node's sum of each part with the rank that carries it.
  void reduce_within(std::size_t number, ReduceOp op) const {
    for_each_lane(
        number, [&](const auto& part, int lane) { return levels_.within->reduce(part, lane, op); });
  }

  /// Gives the node's ranks the parts that their carriers have.
  void spread_within(std::size_t number) const {
    for_each_lane(
        number, [&](const auto& part, int lane) { return levels_.within->broadcast(part, lane); });
  }

 private:
  torch::Tensor part(std::size_t number, int lane) const {
    return part_of(flat_, part_of_lane(chunks_[number], lane, lanes_));
  }

  template <typename Begin>
  void for_each_lane(std::size_t number, Begin begin) const {
    std::vector<Work> works;
    for (int lane = 0; lane < lanes_; ++lane) {
      const torch::Tensor each = part(number, lane);
      if (each.numel() > 0) works.push_back(begin(each, lane));
    }
    for (Work& work : works) work.wait();
  }

  const Levels& levels_;
  torch::Tensor flat_;
  int lanes_;
  std::vector<Part> chunks_;
};

/// A chunk of one rank's input of an all-gather.
struct SourceChunk {
  int from = 0;
  torch::Tensor tensor;
};

// The nodes take turns, so that their links are busy in both directions.
std::vector<SourceChunk> chunks_of_all(const Nodes& nodes, const torch::Tensor& output) {
  const torch::Tensor rows = output.view({nodes.size(), -1});
  const auto parts =
      cut_into_chunks(rows.size(1), static_cast<std::size_t>(rows.element_size()), 1);
  std::vector<SourceChunk> chunks;
  for (int index = 0; index < nodes.size(); ++index)
    for (const Part& part : parts)
      for (const int rank : nodes.ranks_across(index))
        chunks.push_back({rank, part_of(rows[rank], part)});
  return chunks;
}

// Of 16-bit numbers come only means over equal nodes, whose means never leave their range.
bool divides_at_end(ReduceOp op, const torch::Tensor& tensor) {
  return op == ReduceOp::kMean && tensor.element_size() > 2;
}

void all_reduce(const Levels& levels, const torch::Tensor& tensor, ReduceOp op) {
  const bool divides = divides_at_end(op, tensor);
  const ReduceOp step = divides ? ReduceOp::kSum : op;
  const LanedTensor laned(levels, tensor);
  const auto send = [&](std::size_t number) {
    const torch::Tensor own = laned.own(number);
    return own.numel() > 0 ? levels.across->all_reduce(own, step) : Work();
  };
  const auto spread = [&](std::size_t number) {
    if (divides) divide(laned.own(number), levels.nodes.size());
    laned.spread_within(number);
  };
  in_stages(
      laned.chunks(), [&](std::size_t number) { laned.reduce_within(number, step); }, send, spread);
}

void broadcast(const Levels& levels, const torch::Tensor& tensor, int root) {
  const int node = levels.nodes.node_of(root), index = levels.nodes.index_of(root);
  const bool has_root = levels.node() == node;
  const LanedTensor laned(levels, tensor);
  const auto gather = [&](std::size_t number) {
    if (has_root) levels.within->broadcast(laned.chunk(number), index).wait();
  };
  const auto send = [&](std::size_t number) {
    const torch::Tensor own = laned.own(number);
    return own.numel() > 0 ? levels.across->broadcast(own, node) : Work();
  };
  const auto spread = [&](std::size_t number) {
    if (!has_root) laned.spread_within(number);
  };
  in_stages(laned.chunks(), gather, send, spread);
}

void all_gather(const Levels& levels, const torch::Tensor& output, const torch::Tensor& input) {
  if (bytes_in(output) <= kShort) return levels.all->all_gather(output, input).wait();
  const Nodes& nodes = levels.nodes;
  copy_bytes(output.view({nodes.size(), -1})[levels.rank], input);
  const auto chunks = chunks_of_all(nodes, output);
  const auto is_here = [&](const SourceChunk& chunk) {
    return nodes.node_of(chunk.from) == levels.node();
  };
  const auto lane_of = [&](const SourceChunk& chunk) {
    return nodes.index_of(chunk.from) % nodes.fewest();
  };
  const auto gather = [&](std::size_t number) {
    const SourceChunk& chunk = chunks[number];
    if (is_here(chunk)) levels.within->broadcast(chunk.tensor, nodes.index_of(chunk.from)).wait();
  };
  const auto send = [&](std::size_t number) {
    const SourceChunk& chunk = chunks[number];
    if (levels.index() != lane_of(chunk)) return Work();
    return levels.across->broadcast(chunk.tensor, nodes.node_of(chunk.from));
  };
  const auto spread = [&](std::size_t number) {
    const SourceChunk& chunk = chunks[number];
    if (!is_here(chunk)) levels.within->broadcast(chunk.tensor, lane_of(chunk)).wait();
  };
  in_stages(chunks.size(), gather, send, spread);
}

// A part of the rows of these ranks, one row after the other; where they lie if they do so there.
torch::Tensor rows_of(const torch::Tensor& rows, const std::vector<int>& ranks, const Part& part) {
  const auto count = static_cast<std::int64_t>(ranks.size());
  const bool follow = ranks.back() - ranks.front() + 1 == count;
  if (follow && part.count == rows.size(1)) return rows.narrow(0, ranks.front(), count);
  torch::Tensor packed = torch::empty({count, part.count}, rows.options());
  for (std::int64_t row = 0; row < count; ++row)
    copy_bytes(packed[row], part_of(rows[ranks[static_cast<std::size_t>(row)]], part));
  return packed;
}

/// A reduce-scatter among nodes of as many ranks each: a rank gets from its neighbours what the
/// node has of the pieces of all ranks with its index, and exchanges that with them.
void reduce_scatter(const Levels& levels, const CollectiveCall& call) {
  const bool divides = divides_at_end(call.op, call.output);
  const ReduceOp step = divides ? ReduceOp::kSum : call.op;
  const torch::Tensor own = call.output.view(-1), rows = call.input.view({levels.nodes.size(), -1});
  const auto parts = cut_into_chunks(own.numel(), static_cast<std::size_t>(own.element_size()), 1);
  std::vector<torch::Tensor> of_node(parts.size());  // a row for each node
  const auto gather = [&](std::size_t number) {
    const Part& part = parts[number];
    of_node[number] = torch::empty({levels.nodes.count(), part.count}, own.options());
    std::vector<Work> works;
    for (int node = 0; node < levels.nodes.count(); ++node)
      works.push_back(levels.within->reduce_scatter(
          of_node[number][node], rows_of(rows, levels.nodes.ranks_of(node), part), step));
    for (Work& work : works) work.wait();
  };
  const auto send = [&](std::size_t number) {
    return levels.across->reduce_scatter(part_of(own, parts[number]), of_node[number], step);
  };
  const auto spread = [&](std::size_t number) {
    of_node[number].reset();
    if (divides) divide(part_of(own, parts[number]), levels.nodes.size());
  };
  in_stages(parts.size(), gather, send, spread);
}

void barrier(const Levels& levels) {
  levels.within->barrier().wait();
  if (levels.index() == 0) levels.across->barrier().wait();
  levels.within->barrier().wait();
}

/// Carries out a collective on this rank; returns when it has ended here. All ranks make the same
/// calls in the same order, so that all levels see the same order too.
///
/// Data that all ranks need passes each node's link once in each direction. Bits are the same on
/// all ranks and each time: the order of a sum depends on the division into nodes and on sizes.
void carry_out(const Levels& levels, const CollectiveCall& call) {
  switch (call.kind) {
    case Operation::kAllReduce:
      return all_reduce(levels, call.output, call.op);
    case Operation::kReduce:  // rare: all sums are needed on the way
      return all_reduce(levels, call.output.defined() ? call.output : copy_of(call.input), call.op);
    case Operation::kBroadcast:
      return broadcast(levels, call.tensor(), call.root);
    case Operation::kAllGather:
      return all_gather(levels, call.output, call.input);
    case Operation::kReduceScatter: {
      if (call.output.numel() == 0) return;
      if (levels.nodes.are_equal()) return reduce_scatter(levels, call);
      const torch::Tensor sums = copy_of(call.input);  // rare, too
      all_reduce(levels, sums, call.op);
      return copy_bytes(call.output, sums.view({levels.nodes.size(), -1})[levels.rank]);
    }
    case Operation::kBarrier:
      return barrier(levels);
    default:  // what each pair of ranks exchanges crosses the network in any case
      return levels.all->run(call).wait();
  }
}

/// A message whose failure fails the group.
class GuardedMessage : public Work::State {
 public:
  GuardedMessage(Work message, std::weak_ptr<Backend> group)
      : message_(std::move(message)), group_(std::move(group)) {}

  bool poll() override { return message_.done(); }
  int sender() const override { return message_.sender(); }

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
  explicit HierarchicalBackend(Levels levels)
      : Backend(levels.rank, levels.nodes.size()), levels_(std::move(levels)) {}
  ~HierarchicalBackend() override {
    if (!queue_.is_idle()) abort(concat("rank ", rank(), " left the group with unfinished work"));
  }

  std::string name() const override { return "hierarchical"; }
  void match_tags() override { levels_.within->match_tags(); }  // between nodes it is always so
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
  void abort(const std::string& reason) override;
  std::chrono::milliseconds timeout() const override { return levels_.all->timeout(); }
  void set_timeout(std::chrono::milliseconds timeout) override;
  torch::Tensor allocate(std::int64_t elements, const torch::TensorOptions& options) override {
    return levels_.within->allocate(elements, options);
  }

 protected:
  Work begin(const CollectiveCall& call) override;
  std::shared_ptr<Backend> make_subgroup(const std::vector<int>& members) override;
  torch::Tensor make_empty(std::int64_t elements, const torch::TensorOptions& options) override;

 private:
  bool is_neighbour(int peer) const { return levels_.nodes.node_of(peer) == levels_.node(); }
  ProgressThread::Pause advance_messages();

  Levels levels_;
  std::atomic<bool> has_new_message_ = false;
  std::chrono::microseconds pause_ = kFirstPause;  // of the thread below alone
  /// Advances messages through shared memory while this rank does something else. A rank that waits
  /// for a message of another node does not look at its mailboxes, and the one that its neighbour
  /// waits for may lie there.
  ProgressThread message_thread_{[this] { return advance_messages(); }};
  WorkQueue queue_{[this](const std::string& reason) { abort(reason); }};  // ends first
};

Work HierarchicalBackend::begin(const CollectiveCall& call) {
  if (!call.is_message()) return queue_.add([call, this] { carry_out(levels_, call); });
  CollectiveCall within = call;
  within.peer = levels_.nodes.index_of(call.peer);
  const bool is_near = is_neighbour(call.peer);
  Work message = is_near ? levels_.within->run(within) : levels_.all->run(call);
  if (is_near) {
    has_new_message_ = true;
    message_thread_.wake();
  }
  return Work(std::make_shared<GuardedMessage>(std::move(message), weak_from_this()));
}

// Pauses grow while no message is added: a thread that waits for one polls for it itself.
ProgressThread::Pause HierarchicalBackend::advance_messages() {
  auto* const memory = dynamic_cast<host::HostBackend*>(levels_.within.get());
  if (memory == nullptr || !memory->advance_messages()) return std::nullopt;
  if (has_new_message_.exchange(false)) pause_ = kFirstPause;
  return std::exchange(pause_, std::min(2 * pause_, kLongestPause));
}

torch::Tensor HierarchicalBackend::make_empty(
    std::int64_t elements, const torch::TensorOptions& options) {
  torch::Tensor made;
  queue_.add([&] { made = levels_.within->empty(elements, options); }).wait();
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
  if (auto* const memory = dynamic_cast<host::HostBackend*>(levels.within.get()))
    memory->shared_region()->name_ranks(levels.nodes.ranks_of(levels.node()));
  levels.across = levels.all->subgroup(levels.nodes.ranks_across(levels.index()));
  return std::make_shared<HierarchicalBackend>(std::move(levels));
}

// All ranks of a node call this at once, be their new groups within the node or not.
std::shared_ptr<Backend> HierarchicalBackend::make_subgroup(const std::vector<int>& members) {
  std::vector<int> neighbours;
  for (const int member : members)
    if (is_neighbour(member)) neighbours.push_back(levels_.nodes.index_of(member));
  std::shared_ptr<Backend> made;
  queue_
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
  return ShmBackend::create(
      store, concat("node-", neighbours.front()), nodes.index_of(rank), size, timeout);
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
}  // namespace hierarchy

std::shared_ptr<Backend> make_hierarchical_backend(const Store& store, int rank,
    const std::vector<std::string>& hosts, const GlooOptions& options) {
  const hierarchy::Nodes nodes(hosts);
  const auto within = hierarchy::share_memory_everywhere(store, nodes, rank, options.timeout);
  if (nodes.count() == 1) return within;
  GlooOptions wide = options;
  wide.threads = 2;  // while one chunk is added up, the next one is on the way
  const auto all = make_gloo_backend(
      c10::make_intrusive<c10d::PrefixStore>("all", store), rank, nodes.size(), wide);
  return hierarchy::backend_of(
      {.nodes = nodes, .rank = rank, .within = within, .across = nullptr, .all = all});
}

}  // namespace lockstep
