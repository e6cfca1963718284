#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/nn/exported/graph_parts.h"

namespace lockstep::nn::exported {

/// Note [Writing in place]
/// A program has the operators in place of its Python, so values that share memory there must share
/// it here. A view that Python could make of an image may not be possible where channels are last
/// in memory; as a rule a copy does, but not of what is written later. There the view stays a view,
/// and inputs lie in memory as Python's did.
///
/// What a program writes into its inputs, its caller sees, as in Python. A net of ours must leave
/// its batch as it is: the loss may compare it.

/// The values of a graph that may share memory, as the schemas of its operators say: views and
/// results of operators in place with what they are of.
class SharedMemory {
 public:
  explicit SharedMemory(const GraphParts& graph);

  /// Returns whether a step from `first` on writes into the memory of a value.
  bool is_written(Place value, std::size_t first = 0) const;

  /// Returns a number that values have in common that may share memory.
  std::size_t group_of(Place value) const;

 private:
  void join(const std::vector<Place>& values);
  void note_writes(const Step& step, std::size_t behind);

  std::vector<std::size_t> of_;      ///< for each value another one of its group, or itself
  std::vector<std::size_t> behind_;  ///< for each group one more than its last writing step, or 0
};

}  // namespace lockstep::nn::exported
