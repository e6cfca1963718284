#include "bench/collectives/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include <ATen/Parallel.h>

#include "bench/statistics/load_meter.h"
#include "bench/statistics/median.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/core/text.h"

namespace lockstep::bench {
namespace {

constexpr int kRoot = 0;
constexpr std::int64_t kPeriod = 61;  // no power of two, as the borders of pieces and chunks are

// Sums of it over any number of ranks that one can start stay far below 2^24.
float value_of(int rank, std::int64_t index) { return static_cast<float>(index % kPeriod + rank); }

float sum_of(int ranks, std::int64_t index) {
  const std::int64_t sum_of_ranks = ranks * (ranks - 1) / 2;
  return static_cast<float>(ranks * (index % kPeriod) + sum_of_ranks);
}

torch::Tensor make(const ProcessGroup& group, std::int64_t elements, bool group_memory) {
  if (group_memory) return group.empty(elements, torch::kFloat);
  return torch::empty({elements}, torch::kFloat);
}

// A system that was started once is one machine, whatever its containers and made hosts are called.
std::int64_t machine_of_this_rank() {
  return static_cast<std::int64_t>(
      std::hash<std::string>()(text_in("/proc/sys/kernel/random/boot_id")));
}

// Ranks of the same machine see the same interrupts. A collective.
double ranks_on_this_machine(const ProcessGroup& group) {
  const torch::Tensor own = torch::tensor({machine_of_this_rank()}, torch::kLong);
  const torch::Tensor all = torch::empty({group.size()}, torch::kLong);
  group.all_gather(all, own).wait();
  const std::int64_t* const machines = all.data_ptr<std::int64_t>();
  return static_cast<double>(std::count(machines, machines + group.size(), machine_of_this_rank()));
}

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
    const double least = *std::ranges::min_element(slowest);
    calls_ = static_cast<int>(std::clamp(std::ceil(kRepeatSeconds / least), 1.0, kMostCalls));
    seconds_.clear();
    core_seconds_.clear();
    interrupt_seconds_ = 0;
  }

  void take() {
    const double interrupts = interrupt_seconds();  // before the barrier, for it takes a while
    group_.barrier().wait();
    const double core = process_cpu_seconds();
    const Stopwatch watch;
    for (int call = 0; call < calls_; ++call) call_();
    seconds_.push_back(watch.seconds() / calls_);
    core_seconds_.push_back((process_cpu_seconds() - core) / calls_);
    interrupt_seconds_ += (interrupt_seconds() - interrupts) / calls_;
  }

  int calls() const { return calls_; }

  /// Returns the seconds of each repeat on the slowest rank. A collective.
  std::vector<double> agreed() const { return most_of_all(seconds_); }

  /// Returns the seconds for which a call keeps a core busy, on the rank that needs most: its
  /// process, and what the kernel does for the network while no process runs. That is counted in
  /// ticks, so all repeats together say it; ranks of this machine share it. A collective.
  double agreed_core_seconds(double ranks_here) const {
    const double repeats = static_cast<double>(core_seconds_.size());
    const double interrupts = most_of_all({interrupt_seconds_ / repeats / ranks_here}).front();
    return median(most_of_all(core_seconds_)) + interrupts;
  }

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
  double interrupt_seconds_ = 0;  // of the machine, in a call of each repeat
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
  const double ranks_here = ranks_on_this_machine(groups.front());
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
        .core_seconds = ways[i].agreed_core_seconds(ranks_here),
        .checked = sweep.check});
  }
  return lines;
}

}  // namespace

Operands::Operands(Collective collective, ProcessGroup group, std::int64_t bytes, bool group_memory)
    : collective_(collective), group_(std::move(group)) {
  const auto elements = bytes / static_cast<std::int64_t>(sizeof(float));
  const auto part = elements / group_.size();
  const bool gathers = collective == Collective::kAllGather;
  input_ = make(group_, gathers ? part : elements, group_memory);
  if (gathers || collective == Collective::kAllToAll) {
    output_ = make(group_, elements, group_memory);
  } else if (collective == Collective::kReduceScatter) {
    output_ = make(group_, part, group_memory);
  }
  clear();
}

std::int64_t Operands::elements() const {
  return std::max(input_.numel(), output_.defined() ? output_.numel() : 0);
}

void Operands::clear() const {
  input_.zero_();
  if (output_.defined()) output_.zero_();
}

void Operands::run() const {
  switch (collective_) {
    case Collective::kAllReduce:
      return group_.all_reduce(input_).wait();
    case Collective::kReduce:
      return group_.reduce(input_, kRoot).wait();
    case Collective::kBroadcast:
      return group_.broadcast(input_, kRoot).wait();
    case Collective::kAllGather:
      return group_.all_gather(output_, input_).wait();
    case Collective::kReduceScatter:
      return group_.reduce_scatter(output_, input_).wait();
    case Collective::kAllToAll:
      return group_.all_to_all(output_, input_).wait();
  }
}

float Operands::expected(std::int64_t index) const {
  const int rank = group_.rank();
  switch (collective_) {
    case Collective::kAllReduce:
      return sum_of(group_.size(), index);
    case Collective::kReduce:
      return rank == kRoot ? sum_of(group_.size(), index) : value_of(rank, index);
    case Collective::kBroadcast:
      return value_of(kRoot, index);
    case Collective::kAllGather:
      return value_of(static_cast<int>(index / piece()), index % piece());
    case Collective::kReduceScatter:
      return sum_of(group_.size(), rank * piece() + index);
    case Collective::kAllToAll:
      return value_of(static_cast<int>(index / piece()), rank * piece() + index % piece());
  }
  throw std::logic_error("a collective without a result");
}

void Operands::check() const {
  float* const values = input_.data_ptr<float>();
  for (std::int64_t i = 0; i < input_.numel(); ++i) values[i] = value_of(group_.rank(), i);
  run();
  const float* const results = result().data_ptr<float>();
  for (std::int64_t i = 0; i < result().numel(); ++i) {
    if (results[i] == expected(i)) continue;
    throw Error(concat("collectives: a wrong result of ", name_of(collective_), " over ",
        group_.backend_name(), ", message of ",
        elements() * static_cast<std::int64_t>(sizeof(float)), " bytes, rank ", group_.rank(),
        ": element ", i, " is ", results[i], ", not ", expected(i)));
  }
  clear();
}

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
