#include "lockstep/launch/ranks/worker_environment.h"

#include <algorithm>
#include <unistd.h>
#include <utility>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/text.h"

namespace lockstep::launch {
namespace {

constexpr const char* kTunables = "GLIBC_TUNABLES";

auto find(std::vector<std::string>& environment, const std::string& name) {
  return std::find_if(environment.begin(), environment.end(),
      [&](const std::string& entry) { return entry.compare(0, name.size() + 1, name + "=") == 0; });
}

// Without a value there is to be no variable either, not even that of an outer launcher.
void set(std::vector<std::string>& environment, const std::string& name, const std::string& value) {
  const auto entry = find(environment, name);
  if (value.empty()) {
    if (entry != environment.end()) environment.erase(entry);
  } else if (entry == environment.end()) {
    environment.push_back(name + "=" + value);
  } else {
    *entry = name + "=" + value;
  }
}

void set_if_missing(
    std::vector<std::string>& environment, const std::string& name, const std::string& value) {
  if (find(environment, name) == environment.end()) environment.push_back(name + "=" + value);
}

std::vector<std::string> with_usual_settings(std::vector<std::string> environment, int local_size) {
  set_if_missing(environment, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (local_size > 1) set_if_missing(environment, "OMP_NUM_THREADS", "1");
  // A Python program that writes to a pipe would keep its lines until the buffer is full, or lose
  // them when killed.
  set_if_missing(environment, "PYTHONUNBUFFERED", "1");
  return for_tensors(std::move(environment));
}

}  // namespace

// Rank 0 itself serves the store: no agent does.
Variables worker_variables(const LaunchOptions& options, const RankPlan& plan) {
  const std::string rank = std::to_string(options.first_rank() + plan.local_rank);
  const std::string world_size = std::to_string(options.world_size());
  const RankSpan span = options.span.value_or(RankSpan{});
  std::vector<std::string> signals;
  for (const int signal : options.signals) signals.push_back(signal_name(signal));
  return {{"RANK", rank}, {"LOCAL_RANK", std::to_string(plan.local_rank)},
      {"GROUP_RANK", std::to_string(options.node_rank)}, {"ROLE_RANK", rank},
      {"ROLE_NAME", options.role}, {"WORLD_SIZE", world_size},
      {"LOCAL_WORLD_SIZE", std::to_string(options.workers)},
      {"GROUP_WORLD_SIZE", std::to_string(options.nodes)}, {"ROLE_WORLD_SIZE", world_size},
      {"MASTER_ADDR", options.master_address}, {"MASTER_PORT", std::to_string(plan.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(options.earlier_restarts + plan.restart)},
      {"TORCHELASTIC_MAX_RESTARTS",
          std::to_string(options.earlier_restarts + options.max_restarts)},
      {"TORCHELASTIC_RUN_ID", options.run_id}, {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCHELASTIC_ERROR_FILE", plan.error_file},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", joined(signals, ",")}, {"LOCKSTEP_STORE", span.store},
      {"LOCKSTEP_STORE_KEY", span.store_key},
      {"LOCKSTEP_GENERATION", options.span ? std::to_string(span.generation) : ""},
      {"LOCKSTEP_NODE_ADDRESS", span.node_address}, {"LOCKSTEP_SECRET", ""},
      {"LOCKSTEP_PROGRESS", plan.progress},
      {"LOCKSTEP_DEATH_NS", plan.death_ns > 0 ? std::to_string(plan.death_ns) : ""}};
}

std::vector<std::string> worker_environment(
    std::vector<std::string> inherited, const LaunchOptions& options, const RankPlan& plan) {
  for (const auto& [name, value] : worker_variables(options, plan)) set(inherited, name, value);
  return with_usual_settings(std::move(inherited), options.workers);
}

std::vector<std::string> spare_environment(
    std::vector<std::string> inherited, int local_size, int pipe) {
  for (const auto& [name, value] : worker_variables({}, {})) set(inherited, name, "");
  set(inherited, kSpareVariable, std::to_string(pipe));
  return with_usual_settings(std::move(inherited), local_size);
}

std::vector<std::string> with_allocator_tunables(std::vector<std::string> environment) {
  const auto entry = find(environment, kTunables);
  const std::string users =
      entry == environment.end() ? "" : entry->substr(std::string(kTunables).size() + 1);
  set(environment, kTunables, allocator_tunables(users));
  return environment;
}

// Note [OpenMP's waits]
// OpenMP's threads meet at the end of each loop. libgomp lets them spin there for some ten
// milliseconds: beside other busy programs that is the whole time slice, and a training had a tenth
// of its share. Without spinning it is a tenth slower where nothing else runs, as each loop then
// waits for the kernel to wake the threads. These turns take some 50 us.
std::vector<std::string> with_openmp_settings(
    std::vector<std::string> environment, int usable, int available) {
  if (find(environment, "OMP_WAIT_POLICY") == environment.end())
    set_if_missing(environment, "GOMP_SPINCOUNT", "2000");
  if (usable < available && find(environment, "MKL_NUM_THREADS") == environment.end())
    set_if_missing(environment, "OMP_NUM_THREADS", std::to_string(usable));
  return environment;
}

std::vector<std::string> for_tensors(std::vector<std::string> environment) {
  return with_openmp_settings(with_allocator_tunables(std::move(environment)), usable_cpu_count(),
      static_cast<int>(available_cpus().size()));
}

std::string allocator_tunables(const std::string& users) {
  const std::pair<std::string, std::string> ours[] = {{"glibc.malloc.mmap_threshold", "4294967296"},
      {"glibc.malloc.trim_threshold", "8589934592"}, {"glibc.malloc.top_pad", "268435456"},
      {"glibc.malloc.hugetlb", "1"}};
  std::string result = users;
  for (const auto& [name, value] : ours) {
    if ((":" + users).find(":" + name + "=") != std::string::npos) continue;
    result += (result.empty() ? "" : ":") + name + "=" + value;
  }
  return result;
}

std::vector<std::string> current_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

}  // namespace lockstep::launch
