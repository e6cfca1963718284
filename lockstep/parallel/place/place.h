#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

namespace lockstep {

/// Where one replica or one stage computes: a set of CPU cores, or an accelerator.
///
/// So "two devices" means something on a machine without GPUs. `cores` is empty for an accelerator,
/// and for a CPU place whose threads are pinned nowhere.
struct Place {
  torch::Device device = torch::kCPU;
  std::vector<int> cores = {};

  bool operator==(const Place&) const = default;
};

/// Divides the cores that the calling thread may use into `count` places, neighbours together.
///
/// More places than cores share the cores in turn: everything works, nothing is faster, and
/// oversubscribed() says so. Throws InvalidArgument if count < 1.
///
///     auto places = lockstep::cpu_places(2);   // on four cores: 0-1 and 2-3
std::vector<Place> cpu_places(int count);

/// Returns one place for each accelerator of a type, in the order of their indices. Throws
/// InvalidArgument for the CPU, and where there is none.
///
///     auto places = lockstep::device_places(torch::kCUDA);   // cuda:0, cuda:1, ...
std::vector<Place> device_places(torch::DeviceType type);

/// Returns whether two of the places share a core or an accelerator.
bool oversubscribed(const std::vector<Place>& places);

/// Writes a place for people: `cpu cores 0-3`, `cpu`, `cuda:1`.
std::string describe(const Place& place);

}  // namespace lockstep
