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
#include "lockstep/device/accelerator.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/place/place.h"

namespace lockstep {

Pipeline::Pipeline(const Layers& layers, const std::vector<int>& balance,
    const std::vector<Place>& places, PipelineOptions options, ProcessGroup replicas)
    : PipelineCore(layers, balance, options, static_cast<int>(places.size())),
      labels_(places[(balance.size() - 1) % places.size()].device) {
  links_.reserve(places.size());  // the runners keep references
  for (int rank = 0; const Place& place : places) {
    add_runner(rank, place.device, links_.emplace_back(exchange_, places));
    workers_.push_back(std::make_unique<PlaceWorker>(place, concat("stage ", rank)));
    ++rank;
  }
  connect(std::move(replicas));
}

Pipeline::~Pipeline() = default;

void Pipeline::begin_step(const StepPlan& plan) {
  exchange_.restart();
  for (Runner& runner : runners_) runner.begin_step(plan);
  ++step_;
}

void Pipeline::run_rank(std::size_t rank, const std::vector<Action>& actions) {
  try {
    runners_[rank].run(actions);
  } catch (...) {
    exchange_.stop();
    throw;
  }
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
    const ChainInput& input, const torch::Tensor& target, const LossFunction& loss) {
  check_step(input, target);
  sizes_ = micro_batch_sizes(input.batch_size(), options_.chunks());
  // Copied once, in time; what is trained itself goes through its graph.
  const torch::Tensor labels = target.requires_grad() ? target : labels_({target}).wait().front();
  LossSum losses(loss, labels, sizes_, options_.reduction());
  const auto count = sizes_.size();
  before_step();
  begin_step({static_cast<int>(count), draw_stream_seed(), std::ref(losses)});
  runners_.front().put_inputs(input, sizes_);
  run(schedule_for(count).actions);
  runners_.front().hand_on_input_gradients(input, sizes_);
  end_step();
  after_step();
  return losses.sum();
}

torch::Tensor Pipeline::forward(const ChainInput& input, const std::vector<std::int64_t>& sizes) {
  sizes_ = sizes;
  begin_step({static_cast<int>(sizes.size()), draw_stream_seed()});
  runners_.front().put_inputs(input, sizes);
  run(actions_of(schedule_for(sizes.size()), /*forward=*/true));
  return last().take_outputs(sizes.size());
}

std::vector<torch::Tensor> Pipeline::backward(const torch::Tensor& gradient, std::uint64_t step) {
  if (step != step_) {
    throw Error(
        "pipeline: backward came after the pipeline was called again; a pipeline keeps the "
        "activations of one call");
  }
  last().put_output_gradients(gradient, sizes_);
  run(actions_of(schedule_for(sizes_.size()), /*forward=*/false));
  std::vector<torch::Tensor> back = runners_.front().take_input_gradients(sizes_);
  end_step();
  after_step();
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
  // `anchor` requires a gradient, so that the output does, though the inputs need not.
  static torch::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
      const torch::Tensor& anchor, c10::intrusive_ptr<PipelineCall> call) {
    context->saved_data["call"] = c10::IValue::make_capsule(std::move(call));
    (void)inputs;
    return anchor.clone();
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, const torch::autograd::variable_list&) {
    check(!torch::GradMode::is_enabled(),
        "pipeline: a second derivative (create_graph) cannot be computed through a pipeline");
    PipelineCall& call = PipelineCall::of(*context);
    auto gradients = call.pipeline->backward(call.take(), call.step);
    gradients.resize(gradients.size() + 2);  // of the anchor and the call
    return gradients;
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

torch::Tensor Pipeline::operator()(const ChainInput& input) {
  const auto sizes = micro_batch_sizes(input.batch_size(), options_.chunks());
  if (!torch::GradMode::is_enabled()) {
    torch::Tensor output = forward(input, sizes);
    end_step();
    return output;
  }
  before_step();
  auto call = c10::make_intrusive<PipelineCall>();
  call->pipeline = this;
  call->output = forward(input, sizes);
  call->step = step_;
  const auto anchor = at::empty({0}, on_host(torch::kFloat)).requires_grad_();
  return PipelineOutput::apply(
      PipelineBackward::apply(at::TensorList(input.tensors), anchor, call), call);
}

std::vector<PipelineTiming> Pipeline::timing() const {
  std::vector<PipelineTiming> timing;
  for (const Runner& runner : runners_) timing.push_back(runner.timing());
  return timing;
}

}  // namespace lockstep
