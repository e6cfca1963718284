#include "lockstep/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/formats/weights/torch_file.h"
#include "lockstep/liveness/own_slot.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/nn/weights.h"
#include "lockstep/train/input/data_sheet.h"
#include "lockstep/train/input/datasets.h"
#include "lockstep/train/options/run_configuration.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/task/make_task.h"

namespace lockstep {

std::optional<Evaluation> evaluate(const Forward& forward, const Loader& share,
    const ProcessGroup& world, const Task& task, const std::function<bool()>& leaves,
    const OnBatch& on_batch, const std::function<void()>& finish) {
  const at::NoGradGuard no_gradients;
  FindingsSum findings;
  for (auto batch = share.begin(); batch != share.end(); ++batch) {
    const torch::Tensor output = forward(*batch);
    const torch::Tensor target = task.target(*batch).to(output.device(), /*non_blocking=*/true);
    findings.add(task.measure(output, target));
    sign_of_life();
    if (on_batch) on_batch(output, target);
    if (leaves && leaves()) return std::nullopt;
  }
  if (finish) finish();
  return task.evaluation(findings.over_all(world));
}

double value_of(const Scores& scores, const std::string& metric) {
  std::optional<double> value = metric_of(scores, metric);
  if (!value && metric == "top5") value = scores.top1;
  check(value.has_value(), "train: --eval-metric ", metric,
      " is not measured on this set; take loss");
  return *value;
}

namespace {

data::SamplesPointer samples_of_part(
    const Datasets& data, Split split, const TrainOptions& options) {
  if (split == Split::kTrain) return data.unaugmented;
  if (split == Split::kTest) return data.test;
  check(data.validation != nullptr, "train: --split val: ", options.data.name,
      " has no validation samples of its own: a run of it validates on those for testing; use "
      "--split test");
  return data.validation;
}

// What --val-split holds out is no test, though a set without one is tested on it.
Split part_shown(const Datasets& data, Split asked) {
  return asked == Split::kTest && data.test == data.validation ? Split::kVal : asked;
}

// Returns what the caller may not expect of the weights.
std::string load_into(const Replica& replica, const std::string& file) {
  try {
    return remarks_text(nn::load_weights(replica.state(), file));
  } catch (const MixedContent& error) {
    const std::string command = concat("lockstep convert ", file, " weights.safetensors --only");
    throw DataError(
        concat("train: --weights ", file, " holds more than weights; ", error.advice(command)));
  }
}

// Those that there are scores for.
std::int64_t classes_of(const Evaluation& evaluation) {
  return evaluation.of_classes.empty() ? 0 : std::ssize(evaluation.of_classes.front().values);
}

// Numbers where a set has no names, or fewer than the model has classes.
std::vector<std::string> all_class_names(const TrainOptions& options, std::int64_t classes) {
  std::vector<std::string> names;
  for (const auto& name : class_names_of(options.data)) names.push_back(printable_path(name));
  while (std::ssize(names) < classes) names.push_back(std::to_string(names.size()));
  return names;
}

// The library that has the loss, or the task with one; empty for one of ours.
std::string loss_plugin(const TrainOptions& options) {
  const auto& others = nn::plugin_losses();
  const bool is_ours = options.plugin_task.empty() && std::ranges::find(others, options.loss,
                                                          &nn::PluginLoss::name) == others.end();
  return is_ours ? "" : std::filesystem::path(options.plugin).filename().string();
}

}  // namespace

void Predictions::add(const torch::Tensor& output, const torch::Tensor& target) {
  if (most_ == 0 && confusion_.classes() == 0) return;
  const torch::Tensor of_each = task_->losses(output, target);
  if (!of_each.defined()) return;
  const torch::Tensor losses = of_each.to(torch::kDouble).cpu();
  const torch::Tensor predicted = task_->predicted(output);
  if (predicted.defined()) {
    add_classes(losses, predicted.cpu(), target.to(torch::kLong).cpu());
  } else {
    for (std::int64_t i = 0; i < losses.size(0); ++i)
      worst_.push_back({.index = seen_++, .loss = losses.const_data_ptr<double>()[i]});
  }
  keep_worst();
}

void Predictions::add_classes(
    const torch::Tensor& losses, const torch::Tensor& predicted, const torch::Tensor& classes) {
  for (std::int64_t i = 0; i < classes.size(0); ++i, ++seen_) {
    const auto label = classes.const_data_ptr<std::int64_t>()[i];
    if (label == kIgnoredTarget) continue;
    const auto taken_for = predicted.const_data_ptr<std::int64_t>()[i];
    confusion_.add(label, taken_for);
    worst_.push_back({.index = seen_,
        .label = label,
        .predicted = taken_for,
        .loss = losses.const_data_ptr<double>()[i]});
  }
}

void Predictions::keep_worst() {
  const auto badness = [](const Judgement& sample) {
    return std::isnan(sample.loss) ? std::numeric_limits<double>::infinity() : sample.loss;
  };
  std::stable_sort(worst_.begin(), worst_.end(),
      [&](const Judgement& a, const Judgement& b) { return badness(a) > badness(b); });
  worst_.resize(std::min(worst_.size(), most_));
}

Loader evaluation_loader(const data::SamplesPointer& samples, const ProcessGroup& replicas,
    const Replica& replica, data::ResidentSets& resident, const EvaluationBatches& batches) {
  const DistributedSampler sampler(samples->size(), replicas, {.shuffle = false, .padding = false});
  return {samples, sampler.epoch(0), batches.batch_size,
      {.dtype = replica.image_type(),
          .workers = batches.workers,
          .pinned = !replica.device().is_cpu(),
          .channels_last = true,
          .device = replica.device(),
          .resident = resident.of(*samples)}};
}

EvaluationResult evaluate_weights(const EvaluationRequest& request, const Place& place) {
  const TrainOptions& options = request.options;
  use_device(place.device);
  at::globalContext().setFlushDenormal(!options.keep_denormals);
  const nn::KernelScope kernels(options.kernels);
  const Datasets data = load_datasets(options);
  const std::int64_t outputs = model_outputs(options, data);
  const TaskKind kind = task_kind(options, data.train->targets());
  const std::int64_t classes = kind == TaskKind::kClassification ? outputs : 0;
  const data::SamplesPointer samples = samples_of_part(data, request.split, options);
  const Layout layout = plan_layout(options, 1);
  const auto replica = make_replica(options, layout, sample_form(*data.train, outputs),
      make_rank_groups(ProcessGroup(), layout), {place});
  std::string warning = load_into(*replica, request.weights.file);
  replica->set_training(false);
  data::ResidentSets resident(replica->device());
  const Loader loader = evaluation_loader(samples, ProcessGroup(), *replica, resident,
      {.batch_size = options.batch_size,
          .workers = workers_of(options.loading, usable_cpu_count(), data.is_mere_copy)});
  const TaskPointer task = replica->task();
  Predictions predictions(classes, request.worst, task);
  const auto forward = [&](const Batch& batch) { return replica->output(batch); };
  const auto look = [&](const torch::Tensor& output, const torch::Tensor& target) {
    predictions.add(output, target);
  };
  const Evaluation evaluation = evaluate(forward, loader, ProcessGroup(), *task, {}, look).value();
  std::vector<WorstSample> worst;
  for (const Judgement& each : predictions.worst())
    worst.push_back({each, samples->name(each.index),
        sample_picture(*samples, each.index, data.normalization)});
  return {.model = options.model,
      .data = options.data.name,
      .split = name_of(part_shown(data, request.split)),
      .precision = name_of(options.precision),
      .loss = loss_name(options, kind),
      .loss_plugin = loss_plugin(options),
      .weights = request.weights,
      .warning = std::move(warning),
      .data_remark = data.remark,
      .scores = evaluation.scores,
      .samples = evaluation.samples,
      .skipped = samples->size() - evaluation.samples,
      .class_names = all_class_names(options, std::max(classes, classes_of(evaluation))),
      .of_classes = evaluation.of_classes,
      .confusion = predictions.confusion(),
      .worst = std::move(worst)};
}

TrainOptions options_of_run(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path file = fs::path(folder) / "config.toml";
  if (!fs::is_directory(folder)) throw DataError(concat(folder, ": there is no such folder"));
  std::ifstream stream(file);
  if (!stream) throw DataError(concat(folder, ": holds no config.toml, so it is no run's folder"));
  return recorded_options({std::istreambuf_iterator<char>(stream), {}}, file.string());
}

TrainOptions evaluation_options(const TrainOptions& run) {
  return {.model = run.model,
      .plugin = run.plugin,
      .data = run.data,
      .classes = run.classes,
      .loading = {.image_size = run.loading.image_size,
          .bad_images = run.loading.bad_images,
          .val_split = run.loading.val_split},
      .batch_size = run.batch_size,
      .precision = run.precision,
      .tf32 = run.tf32,
      .kernels = run.kernels,
      .task = run.task,
      .plugin_task = run.plugin_task,
      .loss = run.loss,
      .seed = run.seed};
}

}  // namespace lockstep
