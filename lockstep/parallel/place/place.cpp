#include "lockstep/parallel/place/place.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"

namespace lockstep::place {

std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int count) {
  check(count >= 1, "divide_cores: the number of sets must be at least 1: ", count);
  check(!cores.empty(), "divide_cores: there are no cores");
  const auto sets = static_cast<std::size_t>(count);
  std::vector<std::vector<int>> divided;
  if (cores.size() < sets) {
    for (std::size_t i = 0; i < sets; ++i) divided.push_back({cores[i % cores.size()]});
    return divided;
  }
  auto next = cores.begin();
  for (std::size_t i = 0; i < sets; ++i) {
    const std::size_t size = cores.size() / sets + (i < cores.size() % sets ? 1 : 0);
    const auto end = next + static_cast<std::ptrdiff_t>(size);
    divided.emplace_back(next, end);
    next = end;
  }
  return divided;
}

std::string core_ranges(std::vector<int> cores) {
  std::sort(cores.begin(), cores.end());
  std::string text;
  for (std::size_t first = 0; first < cores.size();) {
    std::size_t last = first;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += concat(text.empty() ? "" : ",", cores[first]);
    if (last > first) text += concat("-", cores[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace lockstep::place

namespace lockstep {

std::vector<Place> cpu_places(int count) {
  check(count >= 1, "cpu_places: the number of places must be at least 1: ", count);
  std::vector<Place> places;
  for (auto& cores : place::divide_cores(available_cpus(), count)) {
    places.push_back({torch::kCPU, std::move(cores)});
  }
  return places;
}

std::vector<Place> device_places(torch::DeviceType type) {
  check(type != torch::kCPU,
      "device_places: the CPU is one device; cut its cores into places with cpu_places(count)");
  const std::string reason = reason_against(type);
  check(reason.empty(), "device_places: there is no device of type ", device_type_name(type), ": ",
      reason, "; use cpu_places(count)");
  std::vector<Place> places;
  for (int index = 0; index < device_count(type); ++index) {
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
