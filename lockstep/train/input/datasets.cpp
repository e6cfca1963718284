#include "lockstep/train/input/datasets.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/data/samples.h"
#include "lockstep/train/input/dataset_sources.h"
#include "lockstep/train/input/model_fit.h"
#include "lockstep/train/state/whole_model.h"

namespace lockstep {
namespace {

// Two parts suffice: what is validated on then is the test, too.
void need_a_test(DatasetSource& source, const TrainOptions& options) {
  if (source.test == nullptr) source.test = std::exchange(source.validation, nullptr);
  check(source.test != nullptr, "train: ", options.data.directory,
      " has no images to test on: make a folder val or test next to train, or hold some out by ",
      "--val-split 0.1");
}

}  // namespace

Datasets load_datasets(const TrainOptions& options) {
  DatasetSource source = open_source(options);
  std::string fingerprint = data_fingerprint(source);
  hold_out(source, options);
  need_a_test(source, options);
  const bool once = options.repeat == 1;
  return {.train = once ? source.train
                        : std::make_shared<data::RepeatedSamples>(source.train, options.repeat),
      .validation = source.validation,
      .test = source.test,
      .unaugmented = source.unaugmented,
      .folders = std::move(source.folders),
      .remark = std::move(source.remark),
      .is_mere_copy = source.is_mere_copy,
      .bytes_in_memory = source.bytes_in_memory,
      .normalization = source.normalization,
      .fingerprint = std::move(fingerprint)};
}

std::int64_t model_classes(const TrainOptions& options, const Datasets& data) {
  const std::int64_t needed = data.train->classes(), asked = options.classes.value_or(needed);
  check(asked >= needed, "train: --num-classes ", asked, " is less than the ", needed,
      " classes of ", options.data.name);
  check_model_fits(options, *data.train, asked, usable_memory());
  return asked;
}

namespace {

constexpr std::int64_t kImages = 16;
constexpr std::int64_t kNames = 1000;

// Evenly over the set, the first and the last among them.
std::vector<std::int64_t> some_of(std::int64_t size, std::int64_t most) {
  std::vector<std::int64_t> indices;
  const std::int64_t count = std::min(size, most);
  for (std::int64_t i = 0; i < count; ++i)
    indices.push_back(count > 1 ? i * (size - 1) / (count - 1) : 0);
  return indices;
}

torch::Tensor bytes_of(const std::string& text) {
  return torch::tensor(std::vector<std::uint8_t>(text.begin(), text.end()));
}

// Images, or inputs behind what the set says of them.
std::vector<torch::Tensor> some_samples(const data::Samples& set) {
  std::vector<data::SampleKey> keys;
  for (const std::int64_t index : some_of(set.size(), kImages)) keys.push_back({.index = index});
  const auto inputs = set.inputs();
  const Batch batch = data::empty_batch(
      std::ssize(keys), {.shape = set.shape(), .channels_last = true, .inputs = inputs});
  set.read(keys, batch);
  std::vector<torch::Tensor> content = batch.input_tensors();
  std::string forms;
  for (const data::InputForm& input : inputs) forms += input.text() + '\n';
  if (!inputs.empty()) content.insert(content.begin(), bytes_of(forms));
  return content;
}

// Without the folder, which may have been moved.
torch::Tensor names_of(const data::Samples& set) {
  std::string text;
  for (const std::int64_t index : some_of(set.size(), kNames))
    text += std::filesystem::path(set.name(index)).filename().string() + '\n';
  return bytes_of(text);
}

}  // namespace

std::string data_fingerprint(const DatasetSource& source) {
  const data::Samples& set = *source.unaugmented;
  std::vector<torch::Tensor> content =
      source.folders.empty() ? some_samples(set) : std::vector{names_of(set)};
  content.insert(content.begin(), torch::tensor(source.labels, torch::kLong));
  return hexadecimal(parameters_hash(content));
}

}  // namespace lockstep
