#include "lockstep/parallel/place/place.h"

#include <set>
#include <utility>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/place/cores.h"

namespace lockstep {

std::vector<Place> cpu_places(int count) {
  check(count >= 1, "cpu_places: the number of places must be at least 1: ", count);
  std::vector<Place> places;
  for (auto& cores : place::divide_cores(place::allowed_cores(), count)) {
    places.push_back({torch::kCPU, std::move(cores)});
  }
  return places;
}

std::vector<Place> device_places(torch::DeviceType type) {
  check(
      type != torch::kCPU,
      "device_places: the CPU is one device; cut its cores into places with cpu_places(count)");
  const bool known = c10::impl::hasDeviceGuardImpl(type);
  const int count = known ? c10::impl::getDeviceGuardImpl(type)->deviceCount() : 0;
  check(
      count > 0, "device_places: there is no device of type ",
      c10::DeviceTypeName(type, /*lower_case=*/true), known ? "" : " in this build of LibTorch",
      "; use cpu_places(count)");
  std::vector<Place> places;
  for (int index = 0; index < count; ++index) {
    places.push_back({torch::Device(type, static_cast<torch::DeviceIndex>(index)), {}});
  }
  return places;
}

bool oversubscribed(const std::vector<Place>& places) {
  std::set<int> cores;
  std::set<std::string> devices;
  for (const Place& place : places) {
    for (const int core : place.cores) {
      if (!cores.insert(core).second) return true;
    }
    if (!place.device.is_cpu() && !devices.insert(place.device.str()).second) return true;
  }
  return false;
}

std::string describe(const Place& place) {
  const std::string device = place.device.str();
  if (place.cores.empty()) return device;
  const char* word = place.cores.size() == 1 ? " core " : " cores ";
  return device + word + place::core_ranges(place.cores);
}

}  // namespace lockstep
