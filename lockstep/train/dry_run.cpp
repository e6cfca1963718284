#include "lockstep/train/dry_run.h"

#include <string>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/parameters.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/train/input/datasets.h"
#include "lockstep/train/optim/loss.h"
#include "lockstep/train/record/run_directory.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/strategy/rehearsal.h"
#include "lockstep/train/strategy/stage_balance.h"
#include "lockstep/train/strategy/start_weights.h"
#include "lockstep/train/strategy/task.h"

namespace lockstep {
namespace {

std::int64_t available_memory() {
  return 1024 * keyed_number(text_in("/proc/meminfo"), "MemAvailable:").value_or(0);
}

void count_parameters(const torch::nn::Module& model, TrainPlan& plan) {
  for (const torch::Tensor& parameter : parameters_of(model)) {
    const auto bytes = static_cast<std::int64_t>(parameter.nbytes());
    plan.parameters += parameter.numel();
    plan.parameter_bytes += bytes;
    if (parameter.requires_grad()) plan.trained_bytes += bytes;
  }
}

std::string text_of(const StartWeights& start) {
  const bool has_both = !start.remark.empty() && !start.warning.empty();
  return concat(start.remark, has_both ? "\n" : "", start.warning);
}

void check_memory(const TrainPlan& plan, int local_world_size) {
  const std::int64_t needed = bytes_a_rank(plan) * local_world_size;
  if (plan.available_bytes == 0 || needed <= plan.available_bytes) return;
  throw std::system_error(ENOMEM, std::generic_category(),
      concat("train: the ranks here need at least ", needed / 1000000, " MB, but only ",
          plan.available_bytes / 1000000, " MB are available"));
}

}  // namespace

TrainPlan dry_run(const TrainOptions& options, int world_size, int local_world_size) {
  check_options(options, world_size);
  check_run_directory(options.output, options.resume);
  const Loss known(options.loss);
  const Datasets data = load_datasets(options);
  const Task task = task_of(*data.train, model_classes(options, data));
  nn::Model model = nn::make_model(options.model, task.classes);
  const Layout layout = plan_layout(options, world_size);
  check_inputs(options, layout, task, model);
  check_stages(options, layout, model);
  const StartWeights start = start_with(model, options);
  const bool shares = options.parallel == Parallel::kDp;
  const EpochRule rule{.samples = data.train->size(),
      .replicas = shares ? 1 : layout.replicas,
      .batch_size = options.batch_size * (shares ? layout.replicas : 1),
      .limit_batches = options.limit_train_batches,
      .batches_a_step = options.grad_accum_steps};
  TrainPlan plan{.options = options,
      .world_size = world_size,
      .train_samples = data.train->size(),
      .test_samples = data.test->size(),
      .data_bytes = data.bytes_in_memory,
      .available_bytes = available_memory(),
      .data_remark = data.remark,
      .start = text_of(start)};
  count_parameters(*model, plan);
  check_memory(plan, local_world_size);
  rehearse(options, task, model, start, to_rehearse(options, layout, rule));
  return plan;
}

}  // namespace lockstep
