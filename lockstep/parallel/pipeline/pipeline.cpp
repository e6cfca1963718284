#include "lockstep/parallel/pipeline/pipeline.h"

#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/custom_class.h>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/pipeline/micro_batch.h"
#include "lockstep/parallel/pipeline/stage_plan.h"
#include "lockstep/parallel/place/place_worker.h"

namespace lockstep {
namespace {

// The replicas compare, and connect, the parameters where the stages compute.
const Layers& moved_to(
    const std::vector<Place>& places, const Layers& layers, const std::vector<int>& balance) {
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < balance.size() && !places.empty(); ++stage) {
    const torch::Device device = places[stage % places.size()].device;
    for (int i = 0; i < balance[stage] && layer < layers.size(); ++i, ++layer)
      torch::nn::AnyModule(layers[layer].value()).ptr()->to(device);
  }
  return layers;
}

torch::Device device_of_last(const std::vector<Place>& places, std::size_t stages) {
  return places.empty() ? torch::kCPU : places[(stages - 1) % places.size()].device;
}

}  // namespace

Pipeline::Pipeline(const Layers& layers, const std::vector<int>& balance,
    const std::vector<Place>& places, PipelineOptions options, ProcessGroup replicas)
    : layers_(layers),
      options_(options),
      stages_(static_cast<int>(balance.size())),
      timing_(places.size()),
      labels_(device_of_last(places, balance.size())),
      replicas_(moved_to(places, layers, balance), std::move(replicas)) {
  check_places(places.size(), balance.size(), options);
  const int ranks = static_cast<int>(places.size());
  const auto settings = plan_stages(layers, balance, options);
  links_.reserve(places.size());  // the runners keep references
  for (int rank = 0; rank < ranks; ++rank) {
    const Place& place = places[static_cast<std::size_t>(rank)];
    links_.emplace_back(exchange_, places);
    runners_.emplace_back(
        stages_of_rank(settings, rank, ranks, place.device), stages_, ranks, links_.back());
    workers_.push_back(std::make_unique<PlaceWorker>(place, concat("stage ", rank)));
  }
}

Pipeline::~Pipeline() = default;

const Schedule& Pipeline::schedule_for(std::size_t micro_batches) {
  const auto found = schedules_.find(micro_batches);
  if (found != schedules_.end()) return found->second;
  const auto made = make_schedule(options_.schedule(), static_cast<int>(runners_.size()), stages_,
      static_cast<int>(micro_batches));
  return schedules_.emplace(micro_batches, made).first->second;
}

void Pipeline::begin_step(const StepPlan& plan) {
  exchange_.restart();
  for (Runner& runner : runners_) runner.begin_step(plan);
  ++step_;
}

void Pipeline::run_rank(std::size_t rank, const std::vector<Action>& actions) {
  const Stopwatch watch;
  const double waited = links_[rank].waited_seconds();
  try {
    runners_[rank].run(actions);
  } catch (...) {
    exchange_.stop();
    throw;
  }
  timing_[rank] = {watch.seconds(), links_[rank].waited_seconds() - waited};
}

// All stages have ended when this returns or throws. What is thrown is the first cause, not that
// the others were stopped.
void Pipeline::run(const std::vector<std::vector<Action>>& actions) {
  const ThreadModes modes;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    workers_[rank]->begin([this, rank, &modes, &actions] {
      const ThreadModes::Scope scope(modes);
      run_rank(rank, actions[rank]);
    });
  }
  const SpanScope span(Activity::kStages, "stages");
  std::exception_ptr cause;
  for (const auto& worker : workers_) {
    try {
      worker->wait();
    } catch (const PipelineStopped&) {
      // Its cause comes from another stage.
    } catch (...) {
      if (!cause) cause = std::current_exception();
    }
  }
  if (cause) std::rethrow_exception(cause);
}

void Pipeline::end_step() {
  for (Runner& runner : runners_) runner.end_step();
}

torch::Tensor Pipeline::step(
    const torch::Tensor& input, const torch::Tensor& target, const LossFunction& loss) {
  check_step(input, target);
  sizes_ = micro_batch_sizes(input.size(0), options_.chunks());
  // Copied once, in time; what is trained itself goes through its graph.
  const torch::Tensor labels = target.requires_grad() ? target : labels_({target}).wait().front();
  LossSum losses(loss, labels, sizes_, options_.reduction());
  const auto count = sizes_.size();
  replicas_.before_step();
  begin_step({static_cast<int>(count), draw_stream_seed(), std::ref(losses)});
  put_inputs(runners_.front(), input, sizes_);
  run(schedule_for(count).actions);
  hand_on_input_gradient(runners_.front(), input, sizes_);
  end_step();
  replicas_.after_step();
  return losses.sum();
}

torch::Tensor Pipeline::forward(
    const torch::Tensor& input, const std::vector<std::int64_t>& sizes) {
  sizes_ = sizes;
  begin_step({static_cast<int>(sizes.size()), draw_stream_seed()});
  put_inputs(runners_.front(), input, sizes);
  run(only_forwards(schedule_for(sizes.size())));
  return take_outputs(last(), stages_, sizes.size());
}

torch::Tensor Pipeline::backward(const torch::Tensor& gradient, std::uint64_t step) {
  if (step != step_) {
    throw Error(
        "pipeline: backward came after the pipeline was called again; a pipeline keeps the "
        "activations of one call");
  }
  put_output_gradients(last(), stages_, gradient, sizes_);
  run(only_backwards(schedule_for(sizes_.size())));
  const torch::Tensor back = take_input_gradient(runners_.front(), sizes_);
  end_step();
  replicas_.after_step();
  return back;
}

// Note [A pipeline in the user's graph]
// LibTorch's engine has one thread a device, which may be the one that meets the gradient of the
// output: if it ran the stages, whose threads call the engine for the same device, all would wait
// for each other. So there are two nodes: one for the output, which only keeps its gradient, and
// behind it one whose own output is an empty tensor of the host. The thread that called backward
// runs that one.

/// One forward, until its backward.
struct PipelineCall : torch::CustomClassHolder {
  Pipeline* pipeline = nullptr;  // must outlive its outputs' graphs
  std::uint64_t step = 0;
  torch::Tensor output, gradient;
  std::optional<c10::Event> arrived;  // the gradient, on its device

  static PipelineCall& of(torch::autograd::AutogradContext& context) {
    return *static_cast<PipelineCall*>(context.saved_data["call"].toCapsule().get());
  }

  void keep(const torch::Tensor& given) {
    gradient = given;
    if (given.is_cpu()) return;
    arrived.emplace(given.device().type());
    arrived->record(current_stream(given.device()));
  }

  torch::Tensor take() {
    if (arrived) arrived->block(current_stream(gradient.device()));
    return std::exchange(gradient, {});
  }
};

/// The node that runs the stages.
struct PipelineBackward : torch::autograd::Function<PipelineBackward> {
  // `anchor` requires a gradient, so that the output does, though the input need not.
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
      const torch::Tensor& input, const torch::Tensor& anchor,
      c10::intrusive_ptr<PipelineCall> call) {
    context->saved_data["call"] = c10::IValue::make_capsule(std::move(call));
    (void)input;
    return anchor.clone();
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, const torch::autograd::variable_list&) {
    check(!torch::GradMode::is_enabled(),
        "pipeline: a second derivative (create_graph) cannot be computed through a pipeline");
    PipelineCall& call = PipelineCall::of(*context);
    return {call.pipeline->backward(call.take(), call.step), {}, {}};
  }
};

/// The node that meets the gradient of the output.
struct PipelineOutput : torch::autograd::Function<PipelineOutput> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
      const torch::Tensor& behind, c10::intrusive_ptr<PipelineCall> call) {
    torch::Tensor output = std::move(call->output);
    context->saved_data["call"] = c10::IValue::make_capsule(std::move(call));
    (void)behind;
    return output;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, const torch::autograd::variable_list& gradients) {
    PipelineCall::of(*context).keep(gradients[0]);
    return {at::empty({0}, on_host(torch::kFloat)), {}};
  }
};

torch::Tensor Pipeline::operator()(const torch::Tensor& input) {
  check(input.dim() > 0, "pipeline: the input needs a batch dimension");
  const auto sizes = micro_batch_sizes(input.size(0), options_.chunks());
  if (!torch::GradMode::is_enabled()) {
    torch::Tensor output = forward(input, sizes);
    end_step();
    return output;
  }
  replicas_.before_step();
  auto call = c10::make_intrusive<PipelineCall>();
  call->pipeline = this;
  call->output = forward(input, sizes);
  call->step = step_;
  const auto anchor = at::empty({0}, on_host(torch::kFloat)).requires_grad_();
  return PipelineOutput::apply(PipelineBackward::apply(input, anchor, call), call);
}

void Pipeline::train(bool on) {
  for (auto& layer : layers_) layer.value().ptr()->train(on);
}

std::vector<torch::Tensor> Pipeline::parameters() const { return parameters_of(layers_); }

std::int64_t Pipeline::recomputed() const {
  std::int64_t count = 0;
  for (const Runner& runner : runners_) {
    for (const Stage& stage : runner.stages()) count += stage.recomputed();
  }
  return count;
}

}  // namespace lockstep
