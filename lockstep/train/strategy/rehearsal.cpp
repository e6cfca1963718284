#include "lockstep/train/strategy/rehearsal.h"

#include <algorithm>
#include <exception>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_memory.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/nn/weights.h"
#include "lockstep/parallel/data_parallel/scatter.h"
#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/pipeline/pipeline_core.h"

namespace lockstep {
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

// Zero is a number of something in any set of whole numbers.
torch::Tensor made(
    std::int64_t samples, const std::vector<std::int64_t>& sample, torch::ScalarType type) {
  std::vector<std::int64_t> sizes = {samples};
  sizes.insert(sizes.end(), sample.begin(), sample.end());
  return type == torch::kLong ? at::zeros(sizes, torch::kLong) : at::rand(sizes);
}

std::vector<torch::Tensor> batch_of(const Task& task, std::int64_t samples) {
  std::vector<torch::Tensor> inputs;
  for (const data::InputForm& input : task.inputs)
    inputs.push_back(made(samples, input.sizes, input.type));
  if (inputs.empty()) inputs.push_back(made(samples, task.image, torch::kFloat));
  return inputs;
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

void check_savable(const nn::Model& model) {
  for (const auto& item : nn::named_state(*model)) {
    const auto type = nn::element_type_of(item.value().scalar_type());
    check(type && safetensors_name(*type) && item.value().layout() == torch::kStrided,
        "train: ", item.key(), " has a type that files of weights do not have: ",
        c10::toString(item.value().scalar_type()));
  }
}

}  // namespace

std::vector<Rehearsed> to_rehearse(const TrainOptions& options, const Layout& layout,
    const EpochRule& rule, const EpochPosition& position) {
  std::vector<Rehearsed> all;
  // Batch norms there see the samples of all ranks.
  if (options.sync_batch_norm && rule.replicas > 1) return all;
  const std::int64_t usual =
      smallest_part(options, layout, std::min(rule.batch_size, rule.samples));
  if (usual == 1)
    all.push_back({usual, layout.stages > 1
                              ? "1 sample at a time, as --batch-size and --chunks make of a batch"
                              : "1 sample at a time, as --batch-size says"});
  for (const EpochPosition& begin : {position, EpochPosition()}) {
    const EpochBatches left = batches_left(rule, begin);
    if (left.batches == 0) continue;
    const std::int64_t batch =
        std::min(left.batch_size, left.samples - (left.batches - 1) * left.batch_size);
    const std::int64_t last = smallest_part(options, layout, batch);
    if (last >= usual || (last > 1 && options.plugin.empty())) continue;
    all.push_back({last, concat("the last batch of an epoch, with ", counted(last),
                             last < batch ? " at a time" : "", "; give another --batch-size",
                             left.batches > 1 ? concat(", or leave that batch out by "
                                                       "--limit-train-batches ",
                                                    left.batches - 1)
                                              : "")});
  }
  return all;
}

void rehearse(const TrainOptions& options, const Task& task, nn::Model& model,
    const StartWeights& start, const std::vector<Rehearsed>& all) {
  check_savable(model);
  const at::NoGradGuard no_gradients;
  for (const auto& [samples, when] : all) {
    const KeptBuffers buffers(*model);
    // LibTorch's own generator belongs to all ranks that are threads.
    const RandomStream stream(make_stream_generator(0, 0, 0));
    model->train();
    keep_in_evaluation(start.frozen);
    try {
      model->MultiInputModule::forward(batch_of(task, samples));
    } catch (const std::exception& error) {
      if (as_memory_error(error)) throw;
      const auto* const refusal = dynamic_cast<const c10::Error*>(&error);
      throw InvalidArgument(concat("train: ", options.model, " cannot train on ", when, ": ",
          refusal ? refusal->what_without_backtrace() : error.what()));
    }
  }
}

}  // namespace lockstep
