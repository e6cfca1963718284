#pragma once

#include <lockstep/lockstep.h>
#include <vector>

#include <torch/cuda.h>

/// Returns two GPUs where there are two, else the two halves of the cores.
inline std::vector<lockstep::Place> two_places() {
  if (torch::cuda::device_count() < 2) return lockstep::cpu_places(2);
  auto places = lockstep::device_places(torch::kCUDA);
  places.resize(2);
  return places;
}
