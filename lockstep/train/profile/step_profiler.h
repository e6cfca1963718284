#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/DeviceType.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/spans.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/record/profile/profile.h"

namespace lockstep {

/// The shapes of an operator's arguments, as far as its arithmetic follows from them.
struct OperatorShapes {
  std::vector<std::vector<std::int64_t>> tensors;  ///< in their order
  std::vector<std::int64_t> stride = {}, padding = {}, dilation = {};
  bool is_padding_same = false;  ///< the output is as large as the input
};

/// Returns the operations of the forward of a convolution or a product of matrices, by the direct
/// method, a multiplication and an addition each counted; of attention those of its two products.
/// 0 for every other operator. `name` is LibTorch's: `aten::conv2d`.
double forward_flops(std::string_view name, const OperatorShapes& shapes);

/// Records, while it lives and SpanRecorder is on, each operator of LibTorch that a thread calls
/// and each node of autograd's graph that it runs, but not what these call in turn. One at a time.
class OperatorRecorder {
 public:
  /// `state` are the tensors of the model by their names: see Note [Layers in a profile]. Each
  /// operator is waited for on the calling thread's device of the type `awaited`, if one is named:
  /// there it returns before it is done. Not what other streams carry: ranks would wait for each
  /// other's messages.
  OperatorRecorder(const nn::NamedTensors& state, std::optional<c10::DeviceType> awaited);
  ~OperatorRecorder();
  OperatorRecorder(const OperatorRecorder&) = delete;
  OperatorRecorder& operator=(const OperatorRecorder&) = delete;

  /// Returns how SpanRecorder finds the nodes of LibTorch's graphs.
  static SpanRecorder::Graph graph();

 private:
  std::uint64_t handle_ = 0;
};

/// A profile of a run, and the trace that it was made of.
struct ProfileFiles {
  RunProfile profile;
  std::string trace;
};

/// Measures the chain of a rank's model with a batch; gives nothing if no place has all of it.
using ChainMeasurement = std::function<std::vector<LayerCosts>(const ChainInput& input)>;

/// Measures what the layers of a whole model cost on a batch, in the modes of the calling thread
/// and of the model's modules. A net that is no chain is one layer, `net`.
///
/// The model's parameters must have no gradients yet, and no hooks: a copy's have none.
std::vector<LayerCosts> chain_costs(const nn::Model& model, const ChainInput& input);

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

  /// Ends it. An abandoned step is not measured. Keeps the images of its last batch
  /// for the chain, if no measured step had more.
  void end_step(const ChainInput& input);

  /// Analyses the steps and measures how fast matrices are multiplied here, and the chain: on all
  /// ranks at once, as they share the machine. Returns the profile of all ranks on rank 0; nothing
  /// on others, or if no step was measured. A collective.
  std::optional<ProfileFiles> finish(const ChainMeasurement& chain);

 private:
  bool records() const { return step_ > steps_before() && measured_ < kMeasured; }
  void time_unwaited_steps();
  void begin_measuring();
  double peak() const;

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
  ChainInput input_;                          // of the largest batch
};

}  // namespace lockstep
