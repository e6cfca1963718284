#include "lockstep/core/cpu_share.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sched.h>
#include <string>
#include <tuple>
#include <unistd.h>

#include "lockstep/core/cgroup.h"

namespace lockstep {
namespace {

int topology(int cpu, const char* name) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + name);
  int value = 0;
  file >> value;
  return value;
}

cpu_set_t affinity() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  static_cast<void>(::sched_getaffinity(0, sizeof(mask), &mask));
  return mask;
}

int available_count() {
  const cpu_set_t mask = affinity();
  return std::max(1, CPU_COUNT(&mask));
}

int within_quota(int cores) {
  const auto quota = cgroup_cpu_quota();
  return quota ? std::clamp(static_cast<int>(std::ceil(*quota)), 1, std::max(1, cores)) : cores;
}

}  // namespace

std::vector<int> available_cpus() {
  const cpu_set_t mask = affinity();
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

int usable_cpu_count() { return within_quota(available_count()); }

int threads_on(int cores) {
  const int available = available_count();
  return std::max(1, cores * within_quota(available) / available);
}

int cores_at_once() { return within_quota(static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))); }

std::vector<int> cpu_share(const std::vector<int>& cpus, int index, int shares) {
  const int count = static_cast<int>(cpus.size());
  if (shares < 1 || count < shares) return {};
  const int base = count / shares;
  const int extra = count % shares;
  const int first = index * base + std::min(index, extra);
  const int size = base + (index < extra ? 1 : 0);
  return {cpus.begin() + first, cpus.begin() + first + size};
}

}  // namespace lockstep
