#include "lockstep/cli/env/host_facts.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gnu/libc-version.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <vector>

#include "lockstep/cli/env/nvidia_smi.h"
#include "lockstep/cli/env/scheduler_facts.h"
#include "lockstep/cluster/surroundings.h"
#include "lockstep/core/cgroup.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/launch_options.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string read_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Lists the entries of a folder whose names begin so.
std::vector<std::string> entries(const fs::path& folder, const std::string& start = "") {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    if (name.rfind(start, 0) == 0) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string os_name() {
  std::ifstream file("/etc/os-release");
  const std::string key = "PRETTY_NAME=";
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) == 0) return line.substr(key.size() + 1, line.size() - key.size() - 2);
  }
  return "unknown";
}

Facts system_facts() {
  utsname name{};
  ::uname(&name);
  return {{"os", os_name()}, {"kernel", std::string(name.sysname) + " " + name.release},
      {"architecture", name.machine}, {"libc", std::string("glibc ") + ::gnu_get_libc_version()},
      {"host", name.nodename}};
}

/// Picks out of the processor's flags those that decide how fast tensors are.
Facts vector_extensions(const std::string& flags) {
  Facts found = Facts::array();
  const std::string padded = " " + flags + " ";
  for (const char* name :
      {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
          "avx512_fp16", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16"}) {
    if (padded.find(std::string(" ") + name + " ") != std::string::npos) found.push_back(name);
  }
  return found;
}

Facts or_null(const std::optional<double>& value) { return value ? Facts(*value) : Facts(nullptr); }

Facts processor_facts() {
  const std::string info = read_text("/proc/cpuinfo");
  Facts facts{{"model", field_of(info, "model name")},
      {"cores_online", ::sysconf(_SC_NPROCESSORS_ONLN)}, {"affinity", available_cpus()},
      {"cores_usable", usable_cpu_count()},
      {"numa_nodes", entries("/sys/devices/system/node", "node").size()},
      {"extensions", vector_extensions(field_of(info, "flags"))}};
  facts["cgroup_quota"] = or_null(cgroup_cpu_quota());
  return facts;
}

Facts memory_facts() {
  const std::string info = read_text("/proc/meminfo");
  struct statvfs shared {};
  ::statvfs("/dev/shm", &shared);
  const auto limit = cgroup_memory_limit();
  return {{"total_bytes", or_null(bytes_of(field_of(info, "MemTotal")))},
      {"available_bytes", or_null(bytes_of(field_of(info, "MemAvailable")))},
      {"swap_bytes", or_null(bytes_of(field_of(info, "SwapTotal")))},
      {"cgroup_limit_bytes", limit ? Facts(static_cast<double>(*limit)) : Facts(nullptr)},
      {"dev_shm_bytes",
          static_cast<double>(shared.f_blocks) * static_cast<double>(shared.f_frsize)},
      {"transparent_huge_pages", read_line("/sys/kernel/mm/transparent_hugepage/enabled")}};
}

Facts limit(int resource) {
  rlimit limits{};
  ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limits);
  if (limits.rlim_cur == RLIM_INFINITY) return "unlimited";
  return limits.rlim_cur;
}

Facts limit_facts() {
  return {{"open_files", limit(RLIMIT_NOFILE)}, {"processes", limit(RLIMIT_NPROC)},
      {"locked_memory_bytes", limit(RLIMIT_MEMLOCK)}, {"address_space_bytes", limit(RLIMIT_AS)},
      {"stack_bytes", limit(RLIMIT_STACK)}, {"core_bytes", limit(RLIMIT_CORE)}};
}

Facts network_facts() {
  Facts cards = Facts::object();
  for (const std::string& name : entries("/sys/class/net")) {
    const fs::path folder = fs::path("/sys/class/net") / name;
    const std::string speed = read_line(folder / "speed");  // not known for virtual ones
    const bool known = !speed.empty() && speed[0] != '-';
    const std::string state = read_line(folder / "operstate");
    cards[name] = known ? state + ", " + speed + " Mbit/s" : state;
  }
  return cards;
}

Facts gpu_facts() {
  Facts devices = Facts::array();
  const fs::path folder = "/proc/driver/nvidia/gpus";
  for (const std::string& name : entries(folder)) {
    devices.push_back(field_of(read_text(folder / name / "information"), "Model"));
  }
  Facts facts{{"driver", read_line("/proc/driver/nvidia/version")}, {"devices", devices},
      {"usable", launch::gpu_count()}};
  facts.update(nvidia_smi_facts());
  return facts;
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

// Lists the variables that change how fast or where ranks run.
Facts variables() {
  Facts facts = Facts::object();
  for (const char* name :
      {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND", "KMP_AFFINITY", "LD_PRELOAD",
          "GLIBC_TUNABLES", "CUDA_VISIBLE_DEVICES", "ONEDNN_MAX_CPU_ISA", "RANK", "WORLD_SIZE"}) {
    if (const auto value = system_variable(name); !value.empty()) facts[name] = value;
  }
  return facts;
}

}  // namespace

Facts host_facts() {
  return {{"system", system_facts()}, {"processor", processor_facts()}, {"memory", memory_facts()},
      {"limits", limit_facts()}, {"gpu", gpu_facts()}, {"network", network_facts()},
      {"scheduler", scheduler_facts(cluster::surroundings_of_this_process())}};
}

std::string field_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, name.size(), name) != 0) continue;
    if (line.find_first_not_of(" \t", name.size()) != colon) continue;
    const auto start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::optional<double> bytes_of(const std::string& field) {
  const auto kibibytes = parse_number<double>(field.substr(0, field.find(' ')));
  return kibibytes ? std::optional(*kibibytes * 1024) : std::nullopt;
}

std::string bytes_in_words(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  char text[40];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}

Facts build_facts() {
  return {{"lockstep", LOCKSTEP_VERSION}, {"libtorch", LOCKSTEP_LIBTORCH_VERSION},
      {"compiler", compiler()}, {"c++", __cplusplus}, {"cmake", LOCKSTEP_CMAKE_VERSION},
      {"build_type", LOCKSTEP_BUILD_TYPE}, {"zlib", LOCKSTEP_ZLIB_VERSION},
      {"libpng", LOCKSTEP_LIBPNG_VERSION}, {"openssl", LOCKSTEP_OPENSSL_VERSION},
      {"curl", LOCKSTEP_CURL_VERSION}, {"libarchive", LOCKSTEP_LIBARCHIVE_VERSION},
      {"tomlplusplus", LOCKSTEP_TOML_VERSION},
      {"nlohmann_json", concat(NLOHMANN_JSON_VERSION_MAJOR, ".", NLOHMANN_JSON_VERSION_MINOR, ".",
                            NLOHMANN_JSON_VERSION_PATCH)}};
}

Facts environment_facts() {
  Facts facts{{"v", 1}, {"build", build_facts()}};
  facts.update(host_facts());
  facts["variables"] = variables();
  return facts;
}

}  // namespace lockstep::cli
