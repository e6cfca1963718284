#pragma once

#include <lockstep/lockstep.h>
#include <vector>

/// Returns two GPUs where there are two, else the two halves of the cores. It may load LibTorch's
/// part for CUDA, so it comes before torch::manual_seed().
inline std::vector<lockstep::Place> two_places() {
  const bool has_gpus = lockstep::reason_against(torch::kCUDA).empty();
  if (!has_gpus || lockstep::device_count(torch::kCUDA) < 2) return lockstep::cpu_places(2);
  auto places = lockstep::device_places(torch::kCUDA);
  places.resize(2);
  return places;
}
