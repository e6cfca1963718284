#include "lockstep/core/cpu_share.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sched.h>
#include <sstream>
#include <string>
#include <tuple>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

/// Returns this process's folder below a controller's mount point; an empty controller means
/// version 2.
std::string own_folder(const CgroupFiles& files, const std::string& controller) {
  std::ifstream file(files.own);
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = concat(",", line.substr(first + 1, second - first - 1), ",");
    if (controllers.find(concat(",", controller, ",")) != std::string::npos)
      return line.substr(second + 1);
  }
  return "/";
}

std::string mount_of(const CgroupFiles& files, const std::string& controller) {
  return controller.empty() ? files.mount : concat(files.mount, "/", controller);
}

/// Reads a file of the own cgroup; empty if there is none. Inside a container the own folder is
/// often the root of the mount.
std::string cgroup_file(const std::string& controller, const std::string& name) {
  const CgroupFiles files;
  const std::string mount = mount_of(files, controller);
  const std::string text = text_in(mount + own_folder(files, controller) + "/" + name);
  return text.empty() ? text_in(mount + "/" + name) : text;
}

std::optional<std::int64_t> number(const std::string& text) {
  std::istringstream words(text);
  std::int64_t value = 0;
  if (!(words >> value)) return std::nullopt;
  return value;
}

/// Reads the quota of one cgroup of version 2: `150000 100000`, or `max 100000` for none.
std::optional<double> quota_of_2(const std::string& folder) {
  std::istringstream words(text_in(folder + "/cpu.max"));
  double quota = 0, period = 0;
  if (words >> quota >> period && period > 0) return quota / period;
  return std::nullopt;
}

/// Reads the quota of one cgroup of version 1; -1 means none.
std::optional<double> quota_of_1(const std::string& folder) {
  const auto quota = number(text_in(folder + "/cpu.cfs_quota_us"));
  const auto period = number(text_in(folder + "/cpu.cfs_period_us"));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

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

std::optional<double> cgroup_cpu_quota(const CgroupFiles& files) {
  std::optional<double> least;
  for (const std::string controller : {"", "cpu"}) {
    const std::string mount = mount_of(files, controller);
    const auto note = [&](const std::string& folder) {
      const auto quota = controller.empty() ? quota_of_2(folder) : quota_of_1(folder);
      if (quota) least = std::min(*quota, least.value_or(*quota));
    };
    std::string folder = own_folder(files, controller);
    for (; folder.size() > 1; folder.resize(folder.rfind('/'))) note(mount + folder);
    note(mount);
  }
  return least;
}

std::optional<std::int64_t> cgroup_memory_limit() {
  if (const auto limit = number(cgroup_file("", "memory.max"))) return limit;
  const auto limit = number(cgroup_file("memory", "memory.limit_in_bytes"));
  // Version 1 says "none" by a number near the largest one.
  if (!limit || *limit > std::numeric_limits<std::int64_t>::max() / 2) return std::nullopt;
  return limit;
}

OomKills oom_kills() {
  std::string events = cgroup_file("", "memory.events");
  if (events.empty()) events = cgroup_file("memory", "memory.oom_control");
  return {.in_cgroup = keyed_number(events, "oom_kill").value_or(0),
      .on_host = keyed_number(text_in("/proc/vmstat"), "oom_kill").value_or(0)};
}

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
