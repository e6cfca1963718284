#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/parallel/place/place.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// The devices of a run, and the remarks on them.
struct DeviceChoice {
  torch::DeviceType type = torch::kCPU;
  int count = 0;          ///< devices of that type on this host; 0 for the CPU
  std::string idle = {};  ///< why accelerators that are there are not used; may be empty
};

/// Decides what the ranks of this host compute on.
///
/// `auto` takes accelerators where LibTorch can use them, else the CPU, and says why where it sees
/// an NVIDIA driver all the same. Throws InvalidArgument for a type of device that LibTorch does
/// not know, and std::system_error (ENODEV) that says what to do for one that it knows but cannot
/// use.
DeviceChoice choose_device(const TrainOptions& options);

/// A process among those of this host that belong to the run.
struct RankOfHost {
  int rank = 0;
  int ranks = 1;
};

/// Returns where a process computes that has so many places. Each process takes the next devices; a
/// CPU's cores are divided among its own places, and one place alone is where the process is.
///
/// Throws InvalidArgument where there are fewer devices than the processes need, and where several
/// processes would compute on those that are named.
std::vector<Place> places_of_process(
    const TrainOptions& options, const DeviceChoice& choice, int places, RankOfHost own);

/// Returns the devices of places, for ProcessGroup::with_devices().
std::vector<torch::Device> devices_of(const std::vector<Place>& places);

/// Says on one line what a process takes: `cuda:0, cuda:1; cuda:2 stays idle`; empty for a CPU
/// without accelerators beside it.
std::string describe(const DeviceChoice& choice, const std::vector<Place>& places, int processes);

}  // namespace lockstep
