#include "lockstep/bench/studies/scale_out/published_nodes.h"

#include <algorithm>
#include <array>

namespace lockstep::bench::scale_out {

std::span<const PublishedNodes> published_nodes() {
  // The table of results of BrandonWherry/DistributedMachineLearningPyTorch.
  static const std::array<PublishedNodes, 4> kNodes{{
      {1, 1.00e-4, 32, 650, 8.76, 14, 1.00, 0.3795, 0.4485, 0.8690},
      {2, 1.41e-4, 64, 375, 5.40, 23, 0.81, 0.3646, 0.4351, 0.8730},
      {4, 2.00e-4, 128, 163, 3.35, 36, 0.65, 0.3558, 0.4286, 0.8750},
      {8, 2.83e-4, 256, 82, 2.37, 54, 0.46, 0.3522, 0.4287, 0.8750},
  }};
  return kNodes;
}

const PublishedNodes* find_published_nodes(int nodes) {
  const auto all = published_nodes();
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const PublishedNodes& each) { return each.nodes == nodes; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace lockstep::bench::scale_out
