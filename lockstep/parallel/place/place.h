#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

namespace lockstep::place {

/// Divides cores into `count` >= 1 contiguous sets, the first ones larger by one where it does not
/// come out even. Fewer cores than sets: each set has one core, and sets share cores in turn.
///
///     divide_cores({0, 1, 2}, 2)   // {0, 1} {2}
///     divide_cores({0, 1}, 3)      // {0} {1} {0}
std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int count);

/// Returns cores as ranges: `0-3,8`.
std::string core_ranges(std::vector<int> cores);

}  // namespace lockstep::place

namespace lockstep {

/// The hardware on which one replica or one stage computes: a set of CPU cores, or an accelerator.
///
/// `cores` is empty for an accelerator, and for a CPU place whose threads are not pinned.
struct Place {
  torch::Device device = torch::kCPU;
  std::vector<int> cores = {};

  bool operator==(const Place&) const = default;
};

/// Divides the cores that the calling thread may use into `count` places, neighbours together.
///
/// More places than cores share the cores in turn: it works, but nothing is faster, see
/// oversubscribed(). Throws InvalidArgument if count < 1.
///
///     auto places = lockstep::cpu_places(2);   // on four cores: 0-1 and 2-3
std::vector<Place> cpu_places(int count);

/// Returns one place for each accelerator of a type, in the order of their indices; loads
/// LibTorch's part for them first (see load_cuda()), so call it before anything that asks LibTorch
/// for CUDA. Throws InvalidArgument for the CPU, and, with what to do, where there is none.
///
///     auto places = lockstep::device_places(torch::kCUDA);   // cuda:0, cuda:1, ...
std::vector<Place> device_places(torch::DeviceType type);

/// Returns whether two of the places share a core or an accelerator.
bool oversubscribed(const std::vector<Place>& places);

/// Returns a place in words: `cpu cores 0-3`, `cpu`, `cuda:1`.
std::string describe(const Place& place);

}  // namespace lockstep
