#include "bench/collectives/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include <ATen/Parallel.h>
#include <torch/types.h>

#include "bench/collectives/operands.h"
#include "bench/statistics/median.h"
#include "lockstep/core/process.h"
#include "lockstep/core/stopwatch.h"

namespace lockstep::bench {
namespace {

constexpr double kRepeatSeconds = 2e-3;
constexpr double kMostCalls = 1000;

/// Work of all ranks of a group that is timed.
class TimedWay {
 public:
  TimedWay(ProcessGroup group, std::function<void()> call)
      : group_(std::move(group)), call_(std::move(call)) {}

  // The first call still pays for connections and memory, so the quickest of them decides.
  void warm_up(int repeats) {
    for (int repeat = 0; repeat < repeats; ++repeat) take();
    const std::vector<double> slowest = agreed();
    const double least = *std::min_element(slowest.begin(), slowest.end());
    calls_ = static_cast<int>(std::clamp(std::ceil(kRepeatSeconds / least), 1.0, kMostCalls));
    seconds_.clear();
    core_seconds_.clear();
  }

  void take() {
    group_.barrier().wait();
    const double core = process_cpu_seconds();
    const Stopwatch watch;
    for (int call = 0; call < calls_; ++call) call_();
    seconds_.push_back(watch.seconds() / calls_);
    core_seconds_.push_back((process_cpu_seconds() - core) / calls_);
  }

  int calls() const { return calls_; }

  /// Returns the seconds of each repeat on the slowest rank. A collective.
  std::vector<double> agreed() const { return most_of_all(seconds_); }

  /// Returns the seconds for which a call keeps a core busy, on the rank that needs most. A
  /// collective.
  double agreed_core_seconds() const { return median(most_of_all(core_seconds_)); }

 private:
  std::vector<double> most_of_all(const std::vector<double>& own) const {
    const torch::Tensor most = torch::tensor(own, torch::kDouble);
    group_.all_reduce(most, ReduceOp::kMax).wait();
    const double* const values = most.data_ptr<double>();
    return {values, values + most.numel()};
  }

  ProcessGroup group_;
  std::function<void()> call_;
  int calls_ = 1;
  std::vector<double> seconds_ = {};
  std::vector<double> core_seconds_ = {};
};

TimedWay copy_way(const ProcessGroup& group, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  const auto from = std::make_shared<std::vector<char>>(size, '\1');
  const auto to = std::make_shared<std::vector<char>>(size, '\0');
  return {group, [from, to] { std::memcpy(to->data(), from->data(), from->size()); }};
}

TimedWay collective_way(
    const Sweep& sweep, Collective collective, const ProcessGroup& group, std::int64_t bytes) {
  const auto operands = std::make_shared<Operands>(collective, group, bytes, sweep.group_memory);
  if (sweep.check) operands->check();
  return {group, [operands] { operands->run(); }};
}

std::vector<SweepLine> measure_size(const Sweep& sweep, Collective collective, std::int64_t bytes,
    const std::vector<ProcessGroup>& groups) {
  std::vector<TimedWay> ways;
  for (const ProcessGroup& group : groups) {
    ways.push_back(collective_way(sweep, collective, group, bytes));
  }
  ways.push_back(copy_way(groups.front(), bytes));
  for (TimedWay& way : ways) way.warm_up(sweep.warmup);
  for (int repeat = 0; repeat < sweep.iterations; ++repeat) {
    for (TimedWay& way : ways) way.take();
  }
  const std::vector<double> copy_seconds = ways.back().agreed();
  std::vector<SweepLine> lines;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    lines.push_back({.collective = collective,
        .backend = groups[i].backend_name(),
        .group_memory = sweep.group_memory,
        .ranks = groups[i].size(),
        .bytes = bytes,
        .calls = ways[i].calls(),
        .seconds = ways[i].agreed(),
        .copy_seconds = copy_seconds,
        .core_seconds = ways[i].agreed_core_seconds(),
        .checked = sweep.check});
  }
  return lines;
}

}  // namespace

std::vector<SweepLine> measure(const Sweep& sweep, const std::vector<ProcessGroup>& groups,
    const std::function<void(const SweepLine&)>& tell) {
  // Threads that OpenMP keeps after a loop would spin on the cores that the ranks need.
  at::set_num_threads(1);
  std::vector<SweepLine> all;
  for (const Collective collective : sweep.collectives) {
    for (const std::int64_t bytes : message_sizes(sweep, groups.front().size())) {
      for (SweepLine& line : measure_size(sweep, collective, bytes, groups)) {
        if (tell) tell(line);
        all.push_back(std::move(line));
      }
    }
  }
  return all;
}

}  // namespace lockstep::bench
