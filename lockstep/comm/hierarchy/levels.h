#pragma once

#include <memory>

#include <torch/types.h>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/hierarchy/nodes.h"

namespace lockstep::hierarchy {

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

/// Carry out a collective on this rank; they return when it has ended here. Arguments are those of
/// Backend, and all ranks make the same calls in the same order, so that all levels see the same
/// order too.
///
/// Data that all ranks need passes each node's link once in each direction. Bits are the same on
/// all ranks and each time: the order of a sum depends on the division into nodes and on sizes.
void all_reduce(const Levels& levels, const torch::Tensor& tensor, ReduceOp op);
void broadcast(const Levels& levels, const torch::Tensor& tensor, int root);
void all_gather(const Levels& levels, const torch::Tensor& output, const torch::Tensor& input);
void barrier(const Levels& levels);

/// Carry out what is rare by an all-reduce of a copy: both need all sums on the way.
void reduce(const Levels& levels, const torch::Tensor& tensor, int root, ReduceOp op);
void reduce_scatter(
    const Levels& levels, const torch::Tensor& output, const torch::Tensor& input, ReduceOp op);

}  // namespace lockstep::hierarchy
