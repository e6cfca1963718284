#include "lockstep/launch/cpu_share.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sched.h>
#include <string>
#include <tuple>

#include "lockstep/launch/cgroup.h"

namespace lockstep::launch {
namespace {

int topology(int cpu, const char* name) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + name);
  int value = 0;
  file >> value;
  return value;
}

}  // namespace

std::vector<int> available_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0) return {};
  std::vector<std::tuple<int, int, int>> places;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) continue;
    places.emplace_back(topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu);
  }
  std::sort(places.begin(), places.end());
  std::vector<int> cpus;
  for (const auto& place : places) cpus.push_back(std::get<2>(place));
  return cpus;
}

int usable_cpu_count() {
  const int available = std::max(1, static_cast<int>(available_cpus().size()));
  const auto quota = cgroup_cpu_quota();
  if (!quota) return available;
  return std::clamp(static_cast<int>(std::ceil(*quota)), 1, available);
}

std::vector<int> cpu_share(const std::vector<int>& cpus, int index, int shares) {
  const int count = static_cast<int>(cpus.size());
  if (shares < 1 || count < shares) return {};
  const int base = count / shares;
  const int extra = count % shares;
  const int first = index * base + std::min(index, extra);
  const int size = base + (index < extra ? 1 : 0);
  return {cpus.begin() + first, cpus.begin() + first + size};
}

}  // namespace lockstep::launch
