#include "lockstep/train/strategy/sample_form.h"

#include <algorithm>
#include <cstddef>
#include <exception>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/host_memory.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/models/task_model.h"
#include "lockstep/parallel/balance/layer_costs.h"
#include "lockstep/parallel/data_parallel/scatter.h"
#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/pipeline/pipeline_core.h"
#include "lockstep/parallel/schedule/partition.h"
#include "lockstep/train/task/make_task.h"

namespace lockstep {

namespace {

std::string sample_text(const SampleForm& form) {
  if (form.inputs.empty()) return "is one tensor, an image";
  std::vector<std::string> inputs;
  for (const data::TensorForm& input : form.inputs) inputs.push_back(input.text());
  return concat("has ", inputs.size(), ": ", joined(inputs));
}

// Tensors of one form would go into each other's places without a word.
void check_names(const TrainOptions& options, const SampleForm& form,
    const std::vector<std::string>& taken, bool takes_targets) {
  std::vector<std::string> given;
  for (const data::TensorForm& input : form.inputs) given.push_back(input.name);
  if (takes_targets)
    for (const data::TensorForm& target : form.targets) given.push_back(target.name);
  // Other sets have one order and names of their own, which no flag changes.
  const bool is_said =
      options.data.name != "tensors" || ((form.inputs.size() < 2 || !options.data.inputs.empty()) &&
                                            (!takes_targets || !options.data.targets.empty()));
  check(given.size() < 2 || taken.size() < 2 || given == taken || is_said, "train: ", options.model,
      " takes ", joined(taken), ", and ", options.data.name, " has ", joined(given),
      "; give the tensors in that order by --inputs",
      takes_targets ? " and --targets, the inputs first" : "");
}

// Each turn takes the batch of the step anew.
void check_turns(const TrainOptions& options, const nn::Model& model) {
  if (model->as<nn::TaskModelImpl>()->turns().size() == 1) return;
  check(options.grad_accum_steps == 1,
      "train: --grad-accum-steps makes a step of several batches, and each turn of --task ",
      options.plugin_task, " takes the same one; give a larger --batch-size");
  check(options.precision != Precision::k16Mixed,
      "train: --precision 16-mixed scales one loss, and --task ", options.plugin_task,
      " has several; take bf16-mixed");
}

}  // namespace

SampleForm sample_form(const data::Samples& set, std::int64_t outputs) {
  const data::ImageShape shape = set.shape();
  return {{shape.channels, shape.height, shape.width}, outputs, set.inputs(), set.targets()};
}

void check_inputs(const TrainOptions& options, const Layout& layout, const SampleForm& form,
    const nn::Model& model) {
  const bool is_cut = layout.stages > 1;
  check(!is_cut || options.plugin_task.empty(), "train: --parallel ", name_of(options.parallel),
      " cuts a net into stages, and --task ", options.plugin_task,
      " needs all of it; take serial, dp or ddp");
  check(options.pipeline.checkpoint == Checkpoint::kNever || options.plugin_task.empty(),
      "train: --checkpoint computes the layers of a net one by one, and --task ",
      options.plugin_task, " calls the net itself; leave one of them out");
  check(options.parallel != Parallel::kFsdp || options.plugin_task.empty(),
      "train: --parallel fsdp gathers the layers of a net one by one, and --task ",
      options.plugin_task, " calls the net itself; take ddp");
  if (!options.plugin_task.empty()) return check_turns(options, model);  // it calls the net itself
  const bool takes_targets = options.task == TaskKind::kProgram;
  const std::size_t given =
      std::max<std::size_t>(1, form.inputs.size()) + (takes_targets ? form.targets.size() : 0);
  const std::vector<std::size_t> taken = model->takes();
  std::vector<std::string> counts;
  for (const std::size_t count : taken) counts.push_back(std::to_string(count));
  check(std::ranges::find(taken, given) != taken.end(), "train: ", options.model, " takes ",
      joined(counts, " or "), counts.back() == "1" ? " tensor" : " tensors", ", but a sample of ",
      options.data.name, " ", sample_text(form));
  check_names(options, form, model->input_names(), takes_targets);
  const bool passes_several = given == 1 || nn::is_exported(options.model);
  check(!is_cut || passes_several, "train: --parallel ", name_of(options.parallel),
      " hands one tensor from stage to stage, but a sample of ", options.data.name, " ",
      sample_text(form), "; take serial, dp or ddp");
}

namespace {

// Of one forward pass, of a batch of one rank.
std::int64_t smallest_part(const TrainOptions& options, const Layout& layout, std::int64_t batch) {
  if (options.parallel == Parallel::kDp)
    return data_parallel::chunk_sizes(batch, static_cast<std::size_t>(layout.replicas)).back();
  return layout.stages > 1 ? micro_batch_sizes(batch, layout.micro_batches).back() : batch;
}

std::string counted(std::int64_t samples) {
  return concat(samples, samples == 1 ? " sample" : " samples");
}

// Not ours: what it takes is not known.
bool is_foreign(const TrainOptions& options) {
  return !options.plugin.empty() || nn::is_exported(options.model);
}

// Zero is a number of something in any set of whole numbers.
torch::Tensor made(std::int64_t samples, const std::vector<std::int64_t>& sample,
    torch::ScalarType type, torch::Device device) {
  std::vector<std::int64_t> sizes = {samples};
  sizes.insert(sizes.end(), sample.begin(), sample.end());
  if (at::isFloatingType(type)) return at::rand(sizes, device);
  return at::zeros(sizes, at::TensorOptions(type).device(device));
}

Batch batch_of(const SampleForm& form, std::int64_t samples, torch::Device device = torch::kCPU) {
  Batch batch;
  for (const data::TensorForm& input : form.inputs)
    batch.inputs.push_back({input.name, made(samples, input.sizes, input.type, device)});
  if (batch.inputs.empty())
    batch.inputs.push_back({"input", made(samples, form.image, torch::kFloat, device)});
  for (const data::TensorForm& target : form.targets)
    batch.targets.push_back({target.name, made(samples, target.sizes, target.type, device)});
  return batch;
}

// Keeps the buffers of a module as they are: running statistics.
class KeptBuffers {
 public:
  explicit KeptBuffers(const torch::nn::Module& module) : buffers_(module.buffers()) {
    for (const torch::Tensor& buffer : buffers_) values_.push_back(buffer.clone());
  }
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;
  ~KeptBuffers() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(values_[i]);
  }

 private:
  std::vector<torch::Tensor> buffers_, values_;
};

}  // namespace

std::vector<Rehearsed> to_rehearse(const TrainOptions& options, const Layout& layout,
    const EpochRule& rule, const EpochPosition& position) {
  std::vector<Rehearsed> all;
  // Batch norms there see the samples of all ranks.
  if (options.sync_batch_norm && rule.replicas > 1) return all;
  const std::int64_t usual =
      smallest_part(options, layout, std::min(rule.batch_size, rule.samples));
  if (usual == 1 || nn::is_exported(options.model))
    all.push_back({usual, concat(counted(usual), " at a time, as --batch-size ",
                              layout.stages > 1 ? "and --chunks make of a batch" : "says")});
  for (const EpochPosition& begin : {position, EpochPosition()}) {
    const EpochBatches left = batches_left(rule, begin);
    if (left.batches == 0) continue;
    const std::int64_t batch =
        std::min(left.batch_size, left.samples - (left.batches - 1) * left.batch_size);
    const std::int64_t last = smallest_part(options, layout, batch);
    if (last >= usual || (last > 1 && !is_foreign(options))) continue;
    all.push_back({last, concat("the last batch of an epoch, with ", counted(last),
                             last < batch ? " at a time" : "", "; give another --batch-size",
                             left.batches > 1 ? concat(", or leave that batch out by "
                                                       "--limit-train-batches ",
                                                    left.batches - 1)
                                              : "")});
  }
  return all;
}

void rehearse(const TrainOptions& options, const SampleForm& form, const Task& task,
    nn::Model& model, const StartWeights& start, const std::vector<Rehearsed>& all,
    torch::Device device) {
  const at::NoGradGuard no_gradients;
  if (!all.empty()) model->to(device);
  for (const auto& [samples, when] : all) {
    const KeptBuffers buffers(*model);
    // LibTorch's own generator belongs to all ranks that are threads.
    const RandomStream stream(make_stream_generator(0, 0, 0));
    model->train();
    keep_in_evaluation(start.frozen);
    try {
      model->MultiInputModule::forward(task.measured_inputs(batch_of(form, samples, device)));
    } catch (const std::exception& error) {
      if (as_memory_error(error)) throw;
      const auto* const refusal = dynamic_cast<const c10::Error*>(&error);
      throw InvalidArgument(concat("train: ", options.model, " cannot train on ", when, ": ",
          refusal ? refusal->what_without_backtrace() : error.what()));
    }
  }
}

namespace {

void check_scores(
    const TrainOptions& options, const SampleForm& form, const torch::Tensor& output) {
  check(output.dim() == 2 && output.size(1) == form.outputs, "train: ", options.model,
      ": its first output must be scores of ", form.outputs, " classes, [N, ", form.outputs,
      "], and is ", output.sizes(), "; export it with a head of that size, or give --num-classes");
}

// Computes what may fail for want of a fit.
template <typename Body>
auto told_by_form(const TrainOptions& options, const SampleForm& form, const Body& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    if (as_memory_error(error)) throw;
    throw InvalidArgument(concat("train: ", options.model, " does not fit ", options.data.name,
        ", a sample of which ", sample_text(form), ": ", error.what_without_backtrace()));
  }
}

}  // namespace

Tried try_model(const TrainOptions& options, const SampleForm& form,
    const std::function<std::vector<torch::Tensor>(const Batch&)>& inputs, nn::Model& model) {
  constexpr std::int64_t kSamples = 2;
  const at::NoGradGuard no_gradients;
  const RandomStream stream(make_stream_generator(0, 0, 0));
  Tried tried{.batch = batch_of(form, kSamples), .output = {}};
  const KeptBuffers buffers(*model);
  model->eval();
  tried.output = told_by_form(
      options, form, [&] { return model->MultiInputModule::forward(inputs(tried.batch)); });
  return tried;
}

void check_task(
    const TrainOptions& options, const SampleForm& form, const Task& task, nn::Model& model) {
  const bool is_classification = task_kind(options, form.targets) == TaskKind::kClassification;
  if (is_classification && !nn::is_exported(options.model)) return;
  const auto inputs = [&](const Batch& batch) { return task.measured_inputs(batch); };
  const auto [batch, output] = try_model(options, form, inputs, model);
  if (is_classification) check_scores(options, form, output);
  told_by_form(options, form,
      [&, &batch = batch, &output = output] { return task.measure(output, task.target(batch)); });
}

namespace {

constexpr int kTimedPasses = 3;

std::vector<int> measured(const TrainOptions& options, const Layout& layout, nn::Model model,
    const SampleForm& form, const Task& task, torch::Device device) {
  const nn::Autocast autocast = autocast_of(options.precision, device.type());
  const auto layers = model->layers();
  // A micro-batch as the stages will see it: layers cost other shares of the time in small batches.
  const auto sample = [&] {
    model->to(device);
    return task.inputs(batch_of(form, options.batch_size / layout.micro_batches, device));
  };
  switch (options.pipeline.balance) {
    case Balance::kCount:
      return partition_by_count(layers.size(), layout.stages);
    case Balance::kSize:
      // Of the parameters there are gradients, and what the optimizer keeps of each.
      return balance_by_size(layers, sample(), layout.stages, 2 + state_copies(options.optimizer));
    case Balance::kTime:
      return balance_by_time(layers, sample(), layout.stages, kTimedPasses);
  }
  return {};
}

// A cut that was measured once: measured again it might come out otherwise, and with it the random
// numbers of the stages.
std::vector<int> known_balance(const Layout& layout, const nn::Model& model) {
  std::size_t layers = 0;
  for (const int of_stage : layout.balance) layers += static_cast<std::size_t>(of_stage);
  if (layers != model->layers().size() || std::ssize(layout.balance) != layout.stages)
    throw DataError("train: the snapshot cuts the model into other stages than it has");
  return layout.balance;
}

}  // namespace

void check_stages(const TrainOptions& options, const Layout& layout, const nn::Model& model) {
  std::string advice = "lower --stages";
  if (!options.plugin.empty()) advice += ", or make it a torch::nn::Sequential, which can be cut";
  if (nn::is_exported(options.model))
    advice +=
        "; a program of Python is cut between calls of its modules, where few bytes are alive";
  check(static_cast<std::size_t>(layout.stages) <= model->layers().size(), "train: ", options.model,
      " has ", model->layers().size(), model->layers().size() == 1 ? " layer" : " layers",
      " and cannot be cut into ", layout.stages, " stages; ", advice);
}

std::vector<int> stage_balance(const TrainOptions& options, const Layout& layout,
    const nn::Model& model, const SampleForm& form, const Task& task, torch::Device device,
    const ProcessGroup& world) {
  check_stages(options, layout, model);
  const torch::Tensor balance = torch::zeros({layout.stages}, on_host(torch::kInt));
  if (!layout.balance.empty()) return known_balance(layout, model);
  if (world.rank() == 0) {
    const std::vector<int> own = measured(options, layout, model, form, task, device);
    std::copy(own.begin(), own.end(), balance.data_ptr<int>());
  }
  world.broadcast(balance, 0).wait();
  return {balance.data_ptr<int>(), balance.data_ptr<int>() + layout.stages};
}

}  // namespace lockstep
