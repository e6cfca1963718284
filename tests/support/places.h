#pragma once

#include <cstdlib>
#include <vector>

#include "lockstep/parallel/place/place.h"

namespace lockstep::testing {

/// Says whether the suite runs on emulated devices.
inline bool on_devices() { return std::getenv("LOCKSTEP_TEST_DEVICE") != nullptr; }

/// Returns places to test in: sets of cores, or emulated devices where the suite runs on those.
inline std::vector<Place> places(int count) {
  if (!on_devices()) return cpu_places(count);
  std::vector<Place> places;
  for (int index = 0; index < count; ++index)
    places.push_back(
        {torch::Device(torch::kPrivateUse1, static_cast<torch::DeviceIndex>(index % 4)), {}});
  return places;
}

}  // namespace lockstep::testing
