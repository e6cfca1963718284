#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/record/profile/profile.h"
#include "lockstep/train/profile/operator_recorder.h"

namespace lockstep {

/// A profile of a run, and the trace that it was made of.
struct ProfileFiles {
  RunProfile profile;
  std::string trace;
};

/// Measures the chain of a rank's model with a batch; gives nothing if no place has all of it.
using ChainMeasurement = std::function<std::vector<LayerCosts>(const torch::Tensor& images)>;

/// Measures what the layers of a whole model cost on a batch, in the modes of the calling thread
/// and of the model's modules. A net that is no chain is one layer, `net`.
///
/// The model's parameters must have no gradients yet, and no hooks: a copy's have none.
std::vector<LayerCosts> chain_costs(const nn::Model& model, const torch::Tensor& images);

/// Measures some steps of a training on every rank; of ranks that are threads the first alone. The
/// thread that makes the steps makes and calls it.
///
/// On an accelerator operators return before they are done, so in the steps that are measured each
/// is waited for; as many before them are timed as they are.
class StepProfiler {
 public:
  static constexpr std::int64_t kWarmUp = 3, kMeasured = 10;  ///< steps

  /// `state` are the tensors of the rank's model by their names, `places` where it computes, and
  /// `type` is what it multiplies in.
  StepProfiler(const nn::NamedTensors& state, ProcessGroup world, std::vector<Place> places,
      torch::ScalarType type);

  /// Returns how many steps come before those that are measured.
  std::int64_t steps_before() const { return device_.is_cpu() ? kWarmUp : kWarmUp + kMeasured; }

  /// Begins a step, which waits for its batch first. A collective when the measuring begins.
  void begin_step();

  /// Ends it. One that was begun and abandoned is not measured. Keeps the images of its last batch
  /// for the chain, if no measured step had more.
  void end_step(const torch::Tensor& images);

  /// Analyses the steps and measures how fast matrices are multiplied here, and the chain: on all
  /// ranks at once, as they share the machine. Returns the profile of all ranks on rank 0; nothing
  /// on others, or if no step was measured. A collective.
  std::optional<ProfileFiles> finish(const ChainMeasurement& chain);

 private:
  bool records() const { return step_ > steps_before() && measured_ < kMeasured; }
  void time_unwaited_steps();
  void begin_measuring();
  double peak() const;
  double peak_of_process() const;

  nn::NamedTensors state_;
  ProcessGroup world_;
  std::vector<Place> places_;
  torch::ScalarType type_;
  torch::Device device_;                       // of the thread that makes the steps
  bool is_recorder_;                           // of its process
  std::optional<OperatorRecorder> operators_;  // while steps are measured
  std::int64_t step_ = 0, measured_ = 0;
  std::int64_t start_ = 0;                    // of the measuring, by this machine's clock
  std::int64_t begin_ = 0;                    // of the step
  std::int64_t timed_from_ = 0;               // when the unwaited steps began
  std::optional<double> unwaited_step_ = {};  // milliseconds
  torch::Tensor images_;
};

}  // namespace lockstep
