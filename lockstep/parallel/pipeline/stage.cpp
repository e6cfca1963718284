#include "lockstep/parallel/pipeline/stage.h"

#include <utility>

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/stage_input.h"
#include "lockstep/parallel/pipeline/weight_backward.h"
#include "lockstep/parallel/place/place.h"

namespace lockstep {
namespace {

using Tensors = std::vector<torch::Tensor>;

std::vector<const torch::nn::Module*> modules_of(const Layers& layers) {
  std::vector<const torch::nn::Module*> modules;
  for (const auto& layer : layers) modules.push_back(layer.value().ptr().get());
  return modules;
}

// What autograd starts from: outputs that depend on something, with the gradients that came.
std::pair<Tensors, Tensors> roots_of(const Tensors& outputs, const Payload& gradient, bool loss) {
  std::pair<Tensors, Tensors> roots;
  for (std::size_t index = 0; index < outputs.size(); ++index) {
    if (!outputs[index].requires_grad()) continue;
    const torch::Tensor arriving = loss ? torch::Tensor() : gradient.values.at(index);
    if (!loss && !arriving.defined()) continue;
    roots.first.push_back(outputs[index]);
    roots.second.push_back(arriving.defined() ? arriving.to(outputs[index].device()) : arriving);
  }
  return roots;
}

// Names the stage in LibTorch's errors, which are nested in ours: their C++ frames say nothing
// about the layers.
template <typename Compute>
auto in_stage(int stage, const Compute& compute) {
  try {
    return compute();
  } catch (const c10::Error& error) {
    std::throw_with_nested(
        Error(concat("pipeline: stage ", stage, ": ", error.what_without_backtrace())));
  }
}

}  // namespace

/// A micro-batch between its forward and its backward.
struct Stage::Pass {
  StageInput input;
  ValueForm input_form = ValueForm::kTensor;
  std::size_t skips = 0;
  Tensors outputs;  // with their graph
  WeightBackward weights = {};
  std::optional<Unchanged> unchanged = {};  // these two if it is computed again
  std::optional<ThreadModes> modes = {};
};

Stage::Stage(StageSettings settings) : settings_(std::move(settings)) {
  for (const auto& layer : settings_.layers) layer.value().ptr()->to(settings_.device);
}

Stage::~Stage() = default;
Stage::Stage(Stage&&) noexcept = default;

void Stage::begin_step(const StepPlan& plan) {
  plan_ = plan;
  passes_.clear();
  deferred_.discard();  // of a step that was broken off
  if (settings_.deferred_batch_norm) counters_ = BatchCounters(modules_of(settings_.layers));
}

bool Stage::keeps_inputs_only(int micro_batch) const {
  return recomputes(settings_.checkpoint, micro_batch, plan_.micro_batches);
}

Stage::Output Stage::compute(int micro_batch, const Payload& input, BatchNormRule* rule) {
  // A stream for each stage and micro-batch: neither the schedule nor a second forward changes what
  // they draw.
  const RandomStream stream(make_stream_generator(plan_.seed,
      static_cast<std::size_t>(settings_.index), static_cast<std::size_t>(micro_batch)));
  std::optional<BatchNormScope> scope;
  if (rule != nullptr) scope.emplace(*rule);
  SkipTable skips;
  const SkipScope skip_scope(skips);
  const auto first_skip = input.values.end() - static_cast<std::ptrdiff_t>(input.skips);
  for (std::size_t index = 0; index < input.skips; ++index)
    skips[settings_.skips_in.at(index)] = first_skip[static_cast<std::ptrdiff_t>(index)];
  auto value = value_of(input.form, Tensors(input.values.begin(), first_skip));
  for (auto& layer : settings_.layers) {
    const SpanScope span(Activity::kLayer, layer.key());
    value = layer.value().any_forward(std::move(value));
  }
  Output output;
  if (plan_.loss) {
    output.tensors = {plan_.loss(value, micro_batch)};
    return output;
  }
  output.tensors = tensors_of(value, output.form);
  for (const std::string& name : settings_.skips_out) output.tensors.push_back(skips.at(name));
  return output;
}

Stage::Pass Stage::first_pass(int micro_batch, const Payload& input, Output& output) {
  Pass pass{StageInput(input.values, settings_.device), input.form, input.skips, {}};
  BatchNormRule* const rule = settings_.deferred_batch_norm ? &deferred_ : nullptr;
  if (settings_.deferred_batch_norm) counters_.restore();
  if (torch::GradMode::is_enabled() && keeps_inputs_only(micro_batch)) {
    pass.unchanged.emplace(pass.input.leaves);
    pass.modes.emplace();
    const torch::NoGradGuard no_grad;
    const OwnBuffers buffers(modules_of(settings_.layers));
    output = compute(micro_batch, {input.form, pass.input.leaves, input.skips}, rule);
    buffers.check_unchanged();
  } else {
    output = compute(micro_batch, {input.form, pass.input.seen, input.skips}, rule);
    pass.outputs = output.tensors;
  }
  return pass;
}

Payload Stage::forward(int micro_batch, const Payload& input) {
  Output output;
  Pass pass = in_stage(index(), [&] { return first_pass(micro_batch, input, output); });
  Payload sent{output.form, {}, plan_.loss ? 0 : settings_.skips_out.size()};
  for (const torch::Tensor& tensor : output.tensors) {
    // What will be computed again has no graph yet; it may depend on parameters.
    const bool again = pass.unchanged && (tensor.is_floating_point() || tensor.is_complex());
    sent.values.push_back(tensor.detach().set_requires_grad(tensor.requires_grad() || again));
  }
  if (torch::GradMode::is_enabled()) passes_[micro_batch] = std::make_unique<Pass>(std::move(pass));
  return sent;
}

void Stage::compute_again(int micro_batch, Pass& pass) {
  pass.unchanged->verify();
  const OwnCasts casts;
  const ThreadModes::Scope modes(*pass.modes);
  const torch::AutoGradMode grad(true);
  FrozenStatistics frozen;
  const BatchCounters counters(modules_of(settings_.layers));
  pass.input = StageInput(pass.input.leaves, settings_.device);
  pass.outputs =
      compute(micro_batch, {pass.input_form, pass.input.seen, pass.skips}, &frozen).tensors;
  counters.restore();
  pass.unchanged.reset();
  ++recomputed_;
}

Stage::Pass& Stage::prepared(int micro_batch) {
  const auto found = passes_.find(micro_batch);
  if (found == passes_.end()) {
    throw Error(concat("pipeline: stage ", settings_.index,
        " has nothing kept for the backward of micro-batch ", micro_batch));
  }
  if (found->second->unchanged) compute_again(micro_batch, *found->second);
  return *found->second;
}

// Autocast is for forward and loss; a forward that is computed again has the modes of the first.
template <typename Backward>
Payload Stage::backward_by(int micro_batch, const Payload& gradient, const Backward& backward) {
  const AutocastOff off;
  return in_stage(index(), [&] {
    Pass& pass = prepared(micro_batch);
    const auto [roots, arriving] = roots_of(pass.outputs, gradient, plan_.loss != nullptr);
    if (!roots.empty()) backward(pass, roots, arriving);
    return Payload{pass.input_form, pass.input.gradients(), pass.skips};
  });
}

Payload Stage::backward(int micro_batch, const Payload& gradient) {
  Payload back =
      backward_by(micro_batch, gradient, [](Pass&, const Tensors& roots, const Tensors& arriving) {
        torch::autograd::backward(roots, arriving);
      });
  passes_.erase(micro_batch);
  return back;
}

Payload Stage::backward_input(int micro_batch, const Payload& gradient) {
  return backward_by(
      micro_batch, gradient, [](Pass& pass, const Tensors& roots, const Tensors& arriving) {
        pass.weights = backward_inputs(roots, arriving, pass.input.wanting());
      });
}

void Stage::backward_weight(int micro_batch) {
  const AutocastOff off;
  in_stage(index(), [&] { prepared(micro_batch).weights.run(); });
  passes_.erase(micro_batch);
}

void Stage::end_step() {
  deferred_.commit();
  passes_.clear();
}

}  // namespace lockstep
