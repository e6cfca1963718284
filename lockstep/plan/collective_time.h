#pragma once

#include "lockstep/plan/machine.h"

namespace lockstep::plan {

/// The ranks of a group: as many on each of its nodes.
struct Ranks {
  int nodes = 1;
  int a_node = 1;

  int all() const { return nodes * a_node; }
};

/// The algorithms of an all-reduce.
enum class AllReduce {
  kRing,         ///< through all ranks, node by node: each node's link carries the ring once
  kTree,         ///< a double binary tree: few messages one after the other
  kHierarchical  ///< within the nodes, between them, within again: in chunks, one behind the other
};

/// Return the seconds of a collective of this many bytes on every rank, with nothing else on the
/// links. A ring of n ranks sends 2 (n - 1) messages of bytes / n one after the other; gather and
/// scatter half of them. A group of one takes no time.
double all_reduce_seconds(
    double bytes, const Ranks& ranks, const Machine& machine, AllReduce algorithm);
double all_gather_seconds(double bytes, const Ranks& ranks, const Machine& machine);
double reduce_scatter_seconds(double bytes, const Ranks& ranks, const Machine& machine);

/// Returns the fastest algorithm for that size.
AllReduce fastest_all_reduce(double bytes, const Ranks& ranks, const Machine& machine);

/// Returns the algorithm that the runtime takes: in levels where there are several nodes with
/// several ranks each that share memory, whose bytes their cores move; else a ring, as NCCL's.
AllReduce usual_all_reduce(const Ranks& ranks, const Machine& machine);

/// Returns the share of the time of such a collective in which a rank cannot compute: of a ring, or
/// of that all-reduce.
double core_share(const Ranks& ranks, const Machine& machine);
double core_share(double bytes, const Ranks& ranks, const Machine& machine, AllReduce algorithm);

}  // namespace lockstep::plan
