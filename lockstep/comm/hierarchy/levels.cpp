#include "lockstep/comm/hierarchy/levels.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/comm/hierarchy/chunks.h"
#include "lockstep/comm/hierarchy/stages.h"

namespace lockstep::hierarchy {
namespace {

constexpr std::int64_t kShort = std::int64_t{64} << 10;  // bytes

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

/// A part of what one rank gives to all.
struct Gift {
  int from = 0;
  torch::Tensor tensor;
};

// The nodes take turns, so that their links are busy in both directions.
std::vector<Gift> gifts_of(const Nodes& nodes, const torch::Tensor& output) {
  const torch::Tensor rows = output.view({nodes.size(), -1});
  const auto chunks =
      cut_into_chunks(rows.size(1), static_cast<std::size_t>(rows.element_size()), 1);
  std::vector<Gift> gifts;
  for (int index = 0; index < nodes.size(); ++index)
    for (const Part& chunk : chunks)
      for (const int rank : nodes.ranks_across(index))
        gifts.push_back({rank, part_of(rows[rank], chunk)});
  return gifts;
}

}  // namespace

void all_reduce(const Levels& levels, const torch::Tensor& tensor, ReduceOp op) {
  // Of 16-bit numbers come only means over equal nodes, whose means never leave their range.
  const bool divides = op == ReduceOp::kMean && tensor.element_size() > 2;
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
  const auto gifts = gifts_of(nodes, output);
  const auto is_here = [&](const Gift& gift) { return nodes.node_of(gift.from) == levels.node(); };
  const auto lane_of = [&](const Gift& gift) { return nodes.index_of(gift.from) % nodes.fewest(); };
  const auto gather = [&](std::size_t number) {
    const Gift& gift = gifts[number];
    if (is_here(gift)) levels.within->broadcast(gift.tensor, nodes.index_of(gift.from)).wait();
  };
  const auto send = [&](std::size_t number) {
    const Gift& gift = gifts[number];
    if (levels.index() != lane_of(gift)) return Work();
    return levels.across->broadcast(gift.tensor, nodes.node_of(gift.from));
  };
  const auto spread = [&](std::size_t number) {
    const Gift& gift = gifts[number];
    if (!is_here(gift)) levels.within->broadcast(gift.tensor, lane_of(gift)).wait();
  };
  in_stages(gifts.size(), gather, send, spread);
}

void barrier(const Levels& levels) {
  levels.within->barrier().wait();
  if (levels.index() == 0) levels.across->barrier().wait();
  levels.within->barrier().wait();
}

void reduce(const Levels& levels, const torch::Tensor& tensor, int root, ReduceOp op) {
  all_reduce(levels, levels.rank == root ? tensor : copy_of(tensor), op);
}

void reduce_scatter(
    const Levels& levels, const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) {
  if (output.numel() == 0) return;
  const torch::Tensor sums = copy_of(input);
  all_reduce(levels, sums, op);
  copy_bytes(output, sums.view({levels.nodes.size(), -1})[levels.rank]);
}

}  // namespace lockstep::hierarchy
