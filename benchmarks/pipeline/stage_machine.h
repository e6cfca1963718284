#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "stage_costs.h"
#include "work.h"

#include "lockstep/comm/process_group.h"

namespace lockstep::benchmark {

/// A step of training as measured.
struct StepCost {
  double seconds = 0;
  double cpu_seconds = 0;  ///< of all stages together
  double page_faults = 0;  ///< of all stages together
};

/// The hardware of the stages: places of this process, or ranks.
class StageMachine {
 public:
  virtual ~StageMachine() = default;

  /// Says how many stages can compute at once.
  virtual int ranks() const = 0;
  /// Says how many processes there are.
  virtual int processes() const = 0;
  /// Says whether this process prints.
  virtual bool reports() const = 0;

  /// Runs every stage without the others, one after the other.
  virtual std::vector<StageCosts> lone_stages(
      const Work& work, const std::vector<int>& balance, int micro_batches) = 0;

  /// Runs the stages without each other but at the same time, one on each rank. What they lose by
  /// that, caches and memory take, and no schedule can give it back.
  virtual std::vector<StageCosts> lone_stages_at_once(
      const Work& work, const std::vector<int>& balance, int micro_batches) = 0;

  /// Gives all ranks the first one's balance.
  virtual std::vector<int> agreed(std::vector<int> balance) = 0;

  /// Trains two steps and measures the second.
  virtual StepCost step(
      const Work& work, const std::vector<int>& balance, const PipelineOptions& options) = 0;

  /// Trains two steps and gives for each rank the largest number of bytes that the second had
  /// allocated.
  virtual std::vector<std::int64_t> peak_bytes(
      const Work& work, const std::vector<int>& balance, const PipelineOptions& options) = 0;
};

/// Makes the machine of the cores of this process, or of a group's ranks.
std::unique_ptr<StageMachine> make_place_machine(int places);
std::unique_ptr<StageMachine> make_rank_machine(const ProcessGroup& world);

/// Measures a stage after a first run that is not counted.
StageCosts warm_costs(LoneStage& stage, const std::function<void()>& before_measuring);

}  // namespace lockstep::benchmark
