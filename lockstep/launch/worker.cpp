#include "lockstep/launch/worker.h"

#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/cpu_share.h"
#include "lockstep/launch/program_path.h"
#include "lockstep/launch/worker_environment.h"

namespace lockstep::launch {
namespace {

std::string signal_names(const std::vector<int>& signals) {
  std::string names;
  for (const int signal : signals) {
    if (!names.empty()) names += ',';
    names += signal_name(signal);
  }
  return names;
}

WorkerPlace place_of(const LaunchOptions& options, const LifePlan& plan, int local_rank) {
  return {
      .local_rank = local_rank,
      .local_size = options.workers,
      .node_rank = options.node_rank,
      .nodes = options.nodes,
      .master_address = options.master_address,
      .master_port = plan.master_port,
      .run_id = options.run_id,
      .role = options.role,
      .restart = options.earlier_restarts + plan.restart,
      .max_restarts = options.earlier_restarts + options.max_restarts,
      .death_ns = plan.death_ns,
      .progress = plan.progress,
      .error_file = {},
      .signals_to_handle = signal_names(options.signals)};
}

/// Gives the line with which this life begins in a log that holds earlier ones; empty: none does.
std::string heading_of(const LaunchOptions& options, const LifePlan& plan) {
  if (plan.restart > 0) {
    return concat("lockstep: restart ", plan.restart, " of ", options.max_restarts, "\n");
  }
  return options.output.append ? "lockstep: the run goes on\n" : "";
}

Worker make_worker(const LaunchOptions& options, const LifePlan& life, int local_rank) {
  const int rank = options.node_rank * options.workers + local_rank;
  OutputOptions plan = options.output;
  plan.prefix = fill_prefix(plan.prefix, rank, local_rank, options.role);
  const auto route = [&](Stream stream) {
    return route_of(plan, local_rank, rank, options.workers, stream);
  };
  const Route output = route(Stream::kOutput);
  const Route errors = route(Stream::kErrors);
  const std::string log = errors.file.empty() ? output.file : errors.file;
  return {rank, log, ErrorFile(), WorkerOutput(output, errors, heading_of(options, life)), {}, {}};
}

/// Rank 0 alone reads our input, as under mpirun; not from a terminal, whose driver would stop it
/// there.
bool reads_input(int local_rank) { return local_rank == 0 && ::isatty(STDIN_FILENO) == 0; }

}  // namespace

std::vector<Worker> start_workers(
    const LaunchOptions& options, const LifePlan& plan, const Guardian& guardian) {
  const std::string path = find_program(options.program, environment("PATH").value_or(""));
  const auto cpus = options.pin ? available_cpus() : std::vector<int>();
  std::vector<Worker> workers;
  for (int local_rank = 0; local_rank < options.workers; ++local_rank) {
    workers.push_back(make_worker(options, plan, local_rank));
  }
  for (int local_rank = 0; local_rank < options.workers; ++local_rank) {
    Worker& worker = workers[static_cast<std::size_t>(local_rank)];
    WorkerPlace place = place_of(options, plan, local_rank);
    place.error_file = worker.error_file.path();
    worker.process.emplace(ChildOptions{
        .program = path,
        .arguments = options.arguments,
        .environment = worker_environment(current_environment(), place),
        .cpus = cpu_share(cpus, local_rank, options.workers),
        .inherit_input = reads_input(local_rank),
        .inherit_output = options.output.first_inherits && local_rank == 0,
        .guardian = &guardian});
    worker.output.connect(worker.process->take_output(), worker.process->take_errors());
  }
  return workers;
}

}  // namespace lockstep::launch
