#include "lockstep/bench/studies/scale_out/node_grid.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "lockstep/bench/statistics/oversubscription.h"
#include "lockstep/bench/studies/machine_memory.h"
#include "lockstep/bench/studies/scale_out/trainer_plan.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/hosts/available.h"

namespace lockstep::bench::scale_out {
namespace {

using Words = std::vector<std::string>;

constexpr double kGigabyte = 1e9;

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

bool has_real_hosts(const StudyOptions& options) { return !options.nodes.empty(); }

std::string id_of(const NodePoint& point, const TrainerPlan& plan) {
  return concat(plan.model, "-", plan.budget, "-n", point.nodes, point.killed ? "-killed" : "");
}

std::string first_names(const StudyOptions& options, int count) {
  const std::size_t most = std::min(options.nodes.size(), static_cast<std::size_t>(count));
  std::string names;
  for (std::size_t index = 0; index < most; ++index) {
    names += concat(index == 0 ? "" : ",", options.nodes[index]);
  }
  return names;
}

// One host of this machine needs no network, and no right to make one.
Words hosts_command(const NodePoint& point, const StudyOptions& options, const TrainerPlan& plan) {
  Words words{"hosts"};
  if (has_real_hosts(options)) {
    append(words, {"--names", first_names(options, point.nodes)});
  } else if (point.nodes == 1) {
    return {};
  } else {
    append(words, {"--count", std::to_string(point.nodes), "--rate", plan.rate});
    append(words, {"--cores-a-host", std::to_string(cores_a_host(options))});
  }
  if (point.killed) {
    append(words, {"--max-restarts", "3", "--kill", concat("1@", plan.kill_seconds)});
  }
  // One rank on each, which goes on counting its lives when all are started again.
  append(words, {"--", "lockstep", "run", "--nproc-per-node", "1", "--", kThisProgram});
  return words;
}

Words train_command(const NodePoint& point, const StudyOptions& options, const TrainerPlan& plan) {
  const std::string data = node_data(options);
  Words words{"train", "--model", plan.model, "--data", data};
  if (!options.pretrained.empty()) append(words, {"--pretrained", options.pretrained});
  append(words, {"--image-size", std::to_string(plan.image_size)});
  if (!has_validation(data)) append(words, {"--val-split", plan.val_split});
  append(words, {"--parallel", point.nodes > 1 ? "ddp" : "serial"});
  append(words, {"--batch-size", std::to_string(plan.batch), "--opt", "adam"});
  append(words, {"--lr", "1e-4", "--lr-scale", "sqrt", "--max-time", plan.budget});
  append(words, {"--log-interval", std::to_string(plan.log_interval), "--progress", "none"});
  // Where nobody dies, the snapshot of each epoch that is the best so far is all that is saved.
  append(words, {"--snapshot-interval", point.killed ? plan.snapshot_interval : "never"});
  if (point.killed) append(words, {"--resume", "auto"});
  return words;
}

Words command_of(const NodePoint& point, const StudyOptions& options, const TrainerPlan& plan) {
  Words words = hosts_command(point, options, plan);
  append(words, train_command(point, options, plan));
  return words;
}

std::string missing_real_hosts(const NodePoint& point, const StudyOptions& options) {
  if (std::ssize(options.nodes) < point.nodes) {
    return concat("needs ", point.nodes, " hosts, and --nodes names ", options.nodes.size());
  }
  return point.killed ? "a worker is killed on hosts of this machine alone: leave out --nodes" : "";
}

std::string missing_made_hosts(const NodePoint& point, const TrainerPlan& plan) {
  const double have = static_cast<double>(machine_memory()) / kGigabyte;
  const double need = point.nodes * plan.gigabytes_a_host;
  if (have > 0 && need > have) {
    return concat(
        "needs about ", std::llround(need), " GB of memory for ", point.nodes,
        point.nodes == 1 ? " host" : " hosts", ", and there are ", std::llround(have),
        "; name others by --nodes");
  }
  return point.nodes == 1 ? "" : launch::hosts_missing();
}

std::string not_measurable(
    const NodePoint& point, const StudyOptions& options, const TrainerPlan& plan) {
  if (point.nodes > plan.most_nodes) {
    return "not in --quick; --full measures it";
  }
  return has_real_hosts(options) ? missing_real_hosts(point, options)
                                 : missing_made_hosts(point, plan);
}

// What is no fair test, or only to be shown, is measured once in the quick grid.
int rounds_of(const NodePoint& point, const StudyOptions& options) {
  if (options.full || options.rounds > 0) return 0;
  const bool over = !has_real_hosts(options) && oversubscribed(point.nodes, options.cores);
  return over || point.killed ? 1 : 0;
}

StudyCell cell_of(const NodePoint& point, const StudyOptions& options, const TrainerPlan& plan) {
  const int cores = cores_a_host(options);
  StudyCell cell{
      .id = id_of(point, plan),
      .settings =
          {{"nodes", std::to_string(point.nodes)},
           {"killed", point.killed ? "yes" : "no"},
           {"model", plan.model},
           {"weights", options.pretrained.empty() ? "fresh" : "pretrained"},
           {"image_size", std::to_string(plan.image_size)},
           {"batch", std::to_string(plan.batch)},
           {"budget_seconds", std::to_string(plan.budget_seconds)},
           {"network", has_real_hosts(options) ? "real" : plan.rate}},
      .command = command_of(point, options, plan),
      .places = point.nodes,
      .cores = std::min(options.cores, point.nodes * cores),
      .environment = {concat("OMP_NUM_THREADS=", cores)},
      .rounds = rounds_of(point, options),
      .not_measurable = not_measurable(point, options, plan)};
  if (!has_real_hosts(options)) return cell;
  // Real hosts have cores of their own, all of them, and are never too many for this machine's.
  cell.places = 1;
  cell.cores = 0;
  cell.environment.clear();
  return cell;
}

}  // namespace

std::vector<StudyCell> node_grid(const StudyOptions& options) {
  const TrainerPlan& plan = trainer_plan(options.full);
  std::vector<StudyCell> cells;
  for (const int nodes : kNumbersOfNodes) cells.push_back(cell_of({nodes, false}, options, plan));
  cells.push_back(cell_of({kKilledNodes, true}, options, plan));
  return cells;
}

std::string node_data(const StudyOptions& options) {
  const std::string& set = trainer_plan(options.full).set;
  return options.data_of({set}, concat(set, ":", kBenchFolder, "/data/", set));
}

bool has_validation(const std::string& data) {
  const auto colon = data.find(':');
  if (colon == std::string::npos) return false;
  const std::filesystem::path folder = data.substr(colon + 1);
  std::error_code none;
  for (const char* name : {"val", "valid", "validation"}) {
    if (std::filesystem::is_directory(folder / name, none)) return true;
  }
  return false;
}

int cores_a_host(const StudyOptions& options) {
  return std::max(1, options.cores / trainer_plan(options.full).most_nodes);
}

}  // namespace lockstep::bench::scale_out
