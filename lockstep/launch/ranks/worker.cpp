#include "lockstep/launch/ranks/worker.h"

#include <unistd.h>
#include <utility>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::launch {
namespace {

// The rank itself is not known yet, nor whom it will meet.
Spare start_spare(const LaunchOptions& options, int local_rank, const Guardian& guardian) {
  Pipe pipe = make_pipe();
  ChildOptions child = rank_process(options, local_rank);
  child.environment = spare_environment(current_environment(), options.workers, pipe.reader.get());
  child.kept = pipe.reader.get();
  child.guardian = &guardian;
  return {.process = ChildProcess(child), .pipe = std::move(pipe.writer)};
}

/// Returns the line that begins this attempt in a log that holds earlier ones; empty: none does.
std::string heading_of(const LaunchOptions& options, const RankPlan& plan) {
  if (plan.restart > 0) {
    return concat("lockstep: restart ", plan.restart, " of ", options.max_restarts, "\n");
  }
  return options.continues_logs() ? "lockstep: the run continues\n" : "";
}

Worker make_worker(const LaunchOptions& options, const RankPlan& plan, int local_rank) {
  const int rank = options.first_rank() + local_rank;
  OutputOptions routes = options.output;
  routes.prefix = fill_prefix(routes.prefix, rank, local_rank, options.role);
  const auto route = [&](Stream stream) {
    return route_of(routes, local_rank, rank, options.workers, stream);
  };
  const Route output = route(Stream::kOutput);
  const Route errors = route(Stream::kErrors);
  return {.number = rank,
      .output = WorkerOutput(output, errors, heading_of(options, plan)),
      .log = errors.file.empty() ? output.file : errors.file,
      .message_log = message_log_of(options.output, local_rank, rank),
      .error_file = ErrorFile()};
}

/// Rank 0 alone reads our input, as under mpirun; not from a terminal, whose driver would stop it
/// there.
bool reads_input(int local_rank) { return local_rank == 0 && ::isatty(STDIN_FILENO) == 0; }

}  // namespace

void Spare::become(const Variables& variables) && {
  const std::string text = variables_text(variables);
  // One that has just ended is seen by its process, as any rank.
  [[maybe_unused]] const ssize_t written =
      retried([&] { return ::write(pipe.get(), text.data(), text.size()); });
  pipe.reset();
}

void Spares::fill(const LaunchOptions& options, const std::string& mark) {
  if (!guardian_) guardian_.emplace(mark);
  for (int local_rank = 0; local_rank < options.workers; ++local_rank) {
    if (!spares_.contains(local_rank))
      spares_.emplace(local_rank, start_spare(options, local_rank, *guardian_));
  }
}

std::optional<Spare> Spares::take(int local_rank) {
  auto node = spares_.extract(local_rank);
  if (node.empty() || node.mapped().process.status()) return std::nullopt;
  return std::move(node.mapped());
}

std::vector<pid_t> Spares::pids() const {
  std::vector<pid_t> pids;
  if (guardian_) pids.push_back(guardian_->pid());
  for (const auto& [local_rank, spare] : spares_) pids.push_back(spare.process.pid());
  return pids;
}

void Worker::log_message() {
  const std::string text = message();
  if (text.empty()) return;
  if (message_log.empty()) return output.note(text);
  if (!append_to(message_log, concat("lockstep: ", text, "\n"))) message_log.clear();
}

ChildOptions rank_process(const LaunchOptions& options, int local_rank) {
  const auto cpus = options.pin ? available_cpus() : std::vector<int>();
  return {.program = find_program(options.program, system_variable("PATH")),
      .arguments = options.arguments,
      .cpus = cpu_share(cpus, local_rank, options.workers),
      .inherit_input = reads_input(local_rank),
      .inherit_output = options.output.first_inherits && local_rank == 0,
      .held_signals = options.held_signals};
}

std::vector<Worker> start_ranks(
    const LaunchOptions& options, RankPlan plan, const Guardian& guardian, Spares& spares) {
  std::vector<Worker> workers;
  for (int local_rank = 0; local_rank < options.workers; ++local_rank) {
    workers.push_back(make_worker(options, plan, local_rank));
  }
  for (int local_rank = 0; local_rank < options.workers; ++local_rank) {
    Worker& worker = workers[static_cast<std::size_t>(local_rank)];
    plan.local_rank = local_rank;
    plan.error_file = worker.error_file->path();
    if (auto spare = spares.take(local_rank)) {
      guardian.watch(spare->process.pid());
      worker.process.emplace(std::move(spare->process));
      std::move(*spare).become(worker_variables(options, plan));
    } else {
      ChildOptions child = rank_process(options, local_rank);
      child.environment = worker_environment(current_environment(), options, plan);
      child.guardian = &guardian;
      worker.process.emplace(child);
    }
    worker.output.connect(worker.process->take_output(), worker.process->take_errors());
  }
  return workers;
}

}  // namespace lockstep::launch
