#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/gloo_backend.h"
#include "lockstep/comm/store.h"

namespace lockstep {
namespace hierarchy {

/// The division of a group's ranks among hosts, here called nodes; they may have different numbers
/// of ranks, in any order.
class Nodes {
 public:
  /// Takes what each rank says of its host: ranks share one exactly if their texts are equal. Nodes
  /// are numbered in the order of their first ranks.
  explicit Nodes(const std::vector<std::string>& hosts);

  int count() const { return static_cast<int>(ranks_.size()); }
  int size() const { return static_cast<int>(node_of_.size()); }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  /// Returns the place of a rank among those of its node.
  int index_of(int rank) const { return index_of_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& ranks_of(int node) const {
    return ranks_[static_cast<std::size_t>(node)];
  }
  /// Returns the ranks that have this index on their nodes, in the order of the nodes.
  std::vector<int> ranks_across(int index) const;
  /// Returns the number of ranks on the node that has the fewest.
  int fewest() const;
  /// Returns whether all nodes have as many ranks.
  bool are_equal() const { return fewest() * count() == size(); }
  /// Returns whether there are several nodes, and several ranks on one of them.
  bool are_levels() const { return count() > 1 && count() < size(); }

  /// Returns the division of a subgroup with these members, in this order.
  Nodes among(const std::vector<int>& members) const;

 private:
  std::vector<int> node_of_, index_of_;
  std::vector<std::vector<int>> ranks_;
};

}  // namespace hierarchy

/// Makes a backend for ranks on several hosts: by shared memory within each host, by Gloo between
/// them. `hosts` has a text for each rank; ranks with the same one share a host. Where there is one
/// host, or no host with several ranks, it is the backend shm, or gloo.
///
/// A rank's collectives are carried out by a thread of the group in the order of the calls, so they
/// go on while the rank computes. The store must be the group's own. A collective; throws
/// MemoryNotShared in all ranks if those of a host cannot share memory, before there is a
/// connection.
std::shared_ptr<Backend> make_hierarchical_backend(const Store& store, int rank,
    const std::vector<std::string>& hosts, const GlooOptions& options = {});

}  // namespace lockstep
