#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/enum_names.h"

namespace lockstep {

/// The costs of one layer in training, on a sample; times in seconds.
struct LayerCosts {
  std::string name;
  double forward = 0;
  double backward_input = 0;   ///< of the gradient of its input alone; 0 if it needs none
  double backward_weight = 0;  ///< of those of its parameters, after that; 0 if there are none
  double backward = 0;         ///< of all of them in one pass
  std::int64_t activation_bytes = 0;  ///< that forward leaves allocated, its output among them
  std::int64_t output_bytes = 0;      ///< also if it is the input, changed in place
  std::vector<std::int64_t> parameter_bytes;  ///< of each parameter, in order
};

/// Cuts a chain of layers into blocks so that the largest block costs as little as possible;
/// returns the number of layers of each block, at least 1.
///
/// Of several such cuts it takes the most even one (least sum of squares, then of the numbers of
/// layers), then the one whose first blocks are shorter, because the first stages of a pipeline
/// keep the most activations. Throws InvalidArgument if a cost is negative or not finite, or if
/// there are fewer than 1 or more parts than layers.
///
///     partition({1, 2, 3, 4, 5, 6}, 2)  // {4, 2}
std::vector<int> partition(const std::vector<double>& costs, int parts);

/// Cuts as partition does if all layers cost the same: the last blocks take the rest.
std::vector<int> partition_by_count(std::size_t layers, int parts);

/// Checks a balance made by hand: layers per stage. Throws InvalidArgument with advice if an entry
/// is below 1, if they do not add up to the layers, or if there are more stages than places.
void check_balance(const std::vector<int>& balance, std::size_t layers, int places);

/// The moment at which full sharding gives up parameters that a backward will need.
enum class Reshard {
  kAfterForward,  ///< after their unit's forward; backward gathers them again (ZeRO stage 3)
  /// After backward (ZeRO stage 2): a third less to exchange, but all are whole meanwhile.
  kNever
};
constexpr auto names_of(Reshard) {
  return std::array{
      EnumName{Reshard::kAfterForward, "after-forward"}, EnumName{Reshard::kNever, "never"}};
}

/// Joins adjacent layers, given the bytes of their parameters, to units of at least that size, as
/// full sharding gathers them. Returns the layers of each; those without parameters, and what is
/// left, belong to the unit before.
std::vector<std::vector<std::size_t>> join_to_units(
    const std::vector<std::int64_t>& layers, std::int64_t unit_bytes);

}  // namespace lockstep
