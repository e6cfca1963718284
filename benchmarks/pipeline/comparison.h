#pragma once

#include <functional>
#include <vector>

#include "machine_load.h"
#include "stage_machine.h"

namespace lockstep::benchmark {

/// The measurements of one schedule, a number for each round.
struct ScheduleRecord {
  ScheduleKind kind;
  int stages;
  double bubble_bound;                    ///< the speed-up that the bubble leaves
  std::vector<double> seconds = {};       ///< of a step
  std::vector<double> speed_ups = {};     ///< against the stages alone, one after the other
  std::vector<double> of_bound = {};      ///< the share of the bubble bound
  std::vector<double> of_simulated = {};  ///< the share of the schedule as timed from lone stages
  std::vector<double> of_at_once = {};    ///< and from lone stages that run at the same time
  std::vector<double> cpu = {};           ///< CPU time by that of the lone stages
  std::vector<double> page_faults = {};
  std::vector<std::int64_t> peak_bytes = {};  ///< per rank, without parameters
};

/// A comparison of the schedules of pipelines with the same stages run alone.
class Comparison {
 public:
  Comparison(StageMachine& machine, const WorkSize& size, int chunks,
      const std::vector<ScheduleKind>& kinds);

  /// Measures everything once.
  void run_round();

  /// Prints medians and ranges.
  void report();

 private:
  struct Round {
    std::vector<StageCosts> lone, lone_finer, at_once;
  };
  std::vector<int> balance_of(const ScheduleRecord& record) const;
  PipelineOptions options_of(const ScheduleRecord& record) const;
  double simulated(const ScheduleRecord& record, const std::vector<StageCosts>& costs) const;
  void measure(ScheduleRecord& record, const Round& round);
  void print_round(const MachineLoad& load) const;
  std::vector<double> over_rounds(const std::function<double(const Round&)>& number) const;
  void report_stages() const;
  void report(const ScheduleRecord& record) const;

  StageMachine& machine_;
  WorkSize size_;
  int chunks_;
  Work work_;
  std::vector<int> balance_, finer_balance_;  // as many stages as ranks, and twice as many
  std::vector<ScheduleRecord> records_;
  std::vector<Round> rounds_;
};

}  // namespace lockstep::benchmark
