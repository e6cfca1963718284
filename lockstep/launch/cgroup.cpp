#include "lockstep/launch/cgroup.h"

#include <fstream>
#include <limits>
#include <sstream>

#include "lockstep/core/error.h"

namespace lockstep::launch {
namespace {

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Returns this process's folder below a controller's mount point; an empty controller means
/// version 2.
std::string own_folder(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
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

/// Reads a file of the own cgroup; inside a container the own folder is often the root of the
/// mount.
std::optional<std::string> cgroup_file(const std::string& controller, const std::string& name) {
  const std::string mount =
      controller.empty() ? "/sys/fs/cgroup" : concat("/sys/fs/cgroup/", controller);
  if (const auto text = read_text(mount + own_folder(controller) + "/" + name)) return text;
  return read_text(mount + "/" + name);
}

std::optional<std::int64_t> number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  std::istringstream words(*text);
  std::int64_t value = 0;
  if (!(words >> value)) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> keyed_number(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string word;
  std::int64_t value = 0;
  while (lines >> word) {
    if (word == key && lines >> value) return value;
  }
  return std::nullopt;
}

std::optional<double> cgroup_cpu_quota() {
  if (const auto text = cgroup_file("", "cpu.max")) {
    std::istringstream words(*text);
    double quota = 0;
    double period = 0;
    if (words >> quota >> period && period > 0) return quota / period;
    return std::nullopt;
  }
  const auto quota = number(cgroup_file("cpu", "cpu.cfs_quota_us"));
  const auto period = number(cgroup_file("cpu", "cpu.cfs_period_us"));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<std::int64_t> cgroup_memory_limit() {
  if (const auto limit = number(cgroup_file("", "memory.max"))) return limit;
  const auto limit = number(cgroup_file("memory", "memory.limit_in_bytes"));
  // Version 1 says "none" by a number near the largest one.
  if (!limit || *limit > std::numeric_limits<std::int64_t>::max() / 2) return std::nullopt;
  return limit;
}

OomKills oom_kills() {
  auto events = cgroup_file("", "memory.events");
  if (!events) events = cgroup_file("memory", "memory.oom_control");
  const auto host = read_text("/proc/vmstat");
  return {.in_cgroup = events ? keyed_number(*events, "oom_kill").value_or(0) : 0,
      .on_host = host ? keyed_number(*host, "oom_kill").value_or(0) : 0};
}

}  // namespace lockstep::launch
