#include "lockstep/comm/hierarchy/nodes.h"

#include <algorithm>
#include <map>

namespace lockstep::hierarchy {

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

}  // namespace lockstep::hierarchy
