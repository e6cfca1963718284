#include "lockstep/launch/launch_options.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::launch {

std::chrono::milliseconds hang_timeout_of(const std::string& text) {
  if (text == "0") return std::chrono::milliseconds(0);
  constexpr double kShortest = 0.1, kLongest = 1e7;  // a third of a year
  const double seconds = parse_duration(text);
  check(seconds >= kShortest && seconds <= kLongest, "--hang-timeout: must be from ", kShortest,
      "s to ", kLongest, "s, or 0 for never: ", text);
  return std::chrono::milliseconds(static_cast<long>(seconds * 1000));
}

namespace {

constexpr int kMostWorkers = 4096, kMostWorkersACore = 8;

int device_files() {
  namespace fs = std::filesystem;
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename();
    count += name.starts_with("nvidia") && parse_number<std::uint64_t>(name.substr(6)).has_value();
  }
  return count;
}

}  // namespace

int gpu_count() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return device_files();
  const std::string names = visible;
  if (names.empty() || names[0] == '-') return 0;
  const auto listed = 1 + std::count(names.begin(), names.end(), ',');
  return std::min(static_cast<int>(listed), device_files());
}

// Slurm may have given fewer cores than it lets us see.
Processors processors() {
  const int cores = usable_cpu_count();
  const int given = environment_count("SLURM_CPUS_PER_TASK", 1).value_or(cores);
  return {.gpus = gpu_count(), .cores = std::min(cores, given)};
}

int worker_count(const std::string& text, const Processors& host) {
  if (text == "cpu") return host.cores;
  if (text == "auto") return host.gpus > 0 ? host.gpus : host.cores;
  if (text == "gpu") {
    check(host.gpus > 0,
        "--nproc-per-node: gpu: this host has no NVIDIA device; use cpu or a number");
    return host.gpus;
  }
  const auto count = parse_number<int>(text);
  check(count && *count >= 1 && *count <= kMostWorkers,
      "--nproc-per-node: must be a number from 1 to ", kMostWorkers, ", auto, cpu or gpu: ", text);
  return *count;
}

void check_crowd(int workers, int cores) {
  const int most = std::max(kMostWorkersACore * cores, gpu_count());
  check(workers <= most, "--nproc-per-node: ", workers, " ranks are too many for the ", cores,
      cores == 1 ? " core" : " cores", " that may be used here; give ", most,
      " at most, or --oversubscribe as well if you mean it");
}

void check_options(const LaunchOptions& options) {
  check(options.nodes >= 1, "--nnodes: must be at least 1: ", options.nodes);
  check(options.node_rank >= 0 && options.node_rank < options.nodes,
      "--node-rank: must be from 0 to ", options.nodes - 1, " with --nnodes ", options.nodes, ": ",
      options.node_rank);
  check(options.master_port >= 0 && options.master_port <= 65535,
      "--master-port: must be a port number: ", options.master_port);
  check(options.nodes == 1 || options.master_port > 0,
      "--master-port: with several nodes, give all of them the same port");
  check(options.grace_period.count() >= 0, "--grace-period: must not be negative");
  check(options.max_restarts >= 0, "--max-restarts: must not be negative: ", options.max_restarts);
  check(options.max_restarts == 0 || options.nodes == 1, "--max-restarts: a group on ",
      options.nodes,
      " nodes with fixed numbers is not started again: each launcher sees its own node alone; give "
      "--rdzv-backend lockstep, by which they restart together, or 0");
  for (const int rank : options.output.shown_ranks) {
    check(rank >= 0 && rank < options.workers, "--local-ranks-filter: must be from 0 to ",
        options.workers - 1, ": ", rank);
  }
  check_log_dir(options.output.log_dir, options.continues_logs());
}

}  // namespace lockstep::launch
