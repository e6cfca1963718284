#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/spans.h"
#include "lockstep/train/profile/span_tree.h"

namespace lockstep {

/// The layers to which the time of a model's forward and backward belongs.
///
/// Note [Layers in a profile]
/// The operators that a forward calls know no modules. One that reads parameters belongs to the
/// module that owns these, so that works for every net; the others belong to the layer of the
/// model's chain in which they run. Backward runs the nodes that an operator made: autograd numbers
/// the nodes of each thread, so the numbers that were given out during an operator, or a layer, say
/// which of them are its own.
class LayerNames {
 public:
  /// Learns which nodes the spans of a thread have made.
  void learn(const SpanLane& lane, const std::vector<PlacedSpan>& spans);

  /// Returns the layer that a span's own time belongs to; empty: none.
  const std::string& of(const std::vector<PlacedSpan>& spans, std::size_t index) const;

 private:
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> makers_;  // by thread and node
};

}  // namespace lockstep
