#include "lockstep/launch/ranks/spares.h"

#include <unistd.h>
#include <utility>

#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/ranks/worker.h"
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

}  // namespace lockstep::launch
