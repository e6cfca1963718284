#pragma once

#include <vector>

#include "work.h"

#include "lockstep/parallel/pipeline/stage.h"
#include "lockstep/parallel/schedule/schedule.h"

namespace lockstep::benchmark {

/// The seconds that one stage takes for one micro-batch, alone.
struct StageCosts {
  double forward = 0;
  double backward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double cpu = 0;  ///< CPU seconds of this process, forward and backward together

  double whole() const { return forward + backward; }
};

/// Runs one stage of a model without the others: what would come from them is computed beforehand.
class LoneStage {
 public:
  LoneStage(const Work& work, const std::vector<int>& balance, int index, int micro_batches);

  /// Computes forward and backward of each micro-batch and gives the mean costs of one: `forward`
  /// and `backward`.
  StageCosts run_whole();
  /// Does the same with backward in two parts: `backward_input` and `backward_weight`.
  StageCosts run_split();

 private:
  double forward(int micro_batch);

  Stage stage_;
  StepPlan plan_;
  std::vector<torch::Tensor> targets_;
  std::vector<Payload> inputs_, gradients_;
};

/// Gives the seconds of a schedule whose transfers are free and whose actions take as long as they
/// do alone, stage by stage.
double simulated_seconds(const Schedule& schedule, const std::vector<StageCosts>& costs);

}  // namespace lockstep::benchmark
