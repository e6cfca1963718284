#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/data/samples.h"
#include "lockstep/nn/models/plugin.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/train/input/datasets.h"

namespace lockstep {
namespace {

/// The part that all sets of plugins share; `Base` is the kind of set.
template <typename Base>
class OfPlugin : public Base {
 public:
  OfPlugin(std::string name, nn::PluginSet set) : name_(std::move(name)), set_(std::move(set)) {}

  std::int64_t size() const override { return set_.size; }
  std::int64_t classes() const override { return set_.classes; }
  std::string name(std::int64_t index) const override { return concat(name_, " ", index); }
  /// Throws DataError for a label that is none of the set's classes.
  std::optional<std::int64_t> label(std::int64_t index) const override {
    const std::int64_t label = set_.label(index);
    if (label < 0 || label >= set_.classes)
      throw DataError(concat("plugin: ", name(index), " has the label ", label,
          "; labels must be 0 to ", set_.classes - 1));
    return label;
  }

 protected:
  /// Calls a reader of the plugin's for a sample.
  template <typename Read>
  void read_with(const Read& read, std::int64_t index) const {
    try {
      read();
    } catch (const std::exception& error) {
      throw DataError(concat("plugin: ", name(index), " cannot be read: ", error.what()));
    }
  }

  std::string name_;
  nn::PluginSet set_;
};

// Of one sample: far more than a batch has room for, and no product of sizes overflows.
constexpr std::int64_t kMostNumbers = std::int64_t{1} << 32;

// Returns what is wrong with an input; empty if nothing is.
std::string fault_of(const data::TensorForm& input, const std::vector<data::TensorForm>& before) {
  if (input.name.empty() || std::ranges::count(before, input.name, &data::TensorForm::name) > 0)
    return "has no name, or one that is taken";
  if (input.type != torch::kFloat && input.type != torch::kLong)
    return concat("is of ", input.type, ", but must be of torch::kFloat or torch::kLong");
  std::int64_t numbers = 1;
  for (const std::int64_t size : input.sizes) {
    if (size < 1 || size > kMostNumbers / numbers) return "has a size below 1, or too many numbers";
    numbers *= size;
  }
  return "";
}

std::vector<data::TensorForm> checked_inputs(const std::string& name, const nn::PluginSet& set) {
  std::vector<data::TensorForm> inputs;
  for (const nn::PluginInput& given : set.inputs) {
    const data::TensorForm input{given.name, given.shape, given.type};
    const std::string fault = fault_of(input, inputs);
    if (!fault.empty())
      throw DataError(concat("plugin: ", name, ": input ", inputs.size(), ", ", given.name, " ",
          torch::IntArrayRef(given.shape), ", ", fault));
    inputs.push_back(input);
  }
  return inputs;
}

void check_whole(const std::string& name, const nn::PluginSet& set) {
  if (set.size < 1 || set.classes < 1 || !set.label || !set.read_inputs)
    throw DataError(concat("plugin: ", name,
        " names its inputs, and so needs samples, classes, label and read_inputs: ", set.size,
        " samples of ", set.classes, " classes"));
  const bool has_shape =
      std::ranges::any_of(set.shape, [](std::int64_t size) { return size != 0; });
  if (set.inputs.size() > nn::kMostInputs || set.read || has_shape)
    throw DataError(concat("plugin: ", name, " names ", set.inputs.size(), " inputs: there may be ",
        nn::kMostInputs, ", and neither a shape nor read beside them"));
}

// The memory of one input of a batch. Where that is of bfloat16, a sample is put beside it first.
class InputRows {
 public:
  InputRows(const torch::Tensor& batch, const data::TensorForm& input)
      : first_(static_cast<std::byte*>(batch.mutable_data_ptr())),
        elements_(static_cast<std::size_t>(input.elements())),
        bytes_(elements_ * static_cast<std::size_t>(batch.element_size())),
        floats_(batch.scalar_type() == torch::kBFloat16 ? elements_ : 0) {}

  void* begin(std::size_t sample) {
    return floats_.empty() ? static_cast<void*>(first_ + sample * bytes_) : floats_.data();
  }

  void end(std::size_t sample) const {
    auto* const rounded = reinterpret_cast<torch::BFloat16*>(first_ + sample * bytes_);
    std::copy(floats_.begin(), floats_.end(), rounded);
  }

 private:
  std::byte* first_;
  std::size_t elements_, bytes_;
  std::vector<float> floats_;
};

/// A set of a plugin that names the inputs of its samples.
class PluginInputSamples final : public OfPlugin<data::Samples> {
 public:
  /// Throws DataError unless the set is whole: names and types that there are, sizes from 1.
  PluginInputSamples(std::string name, nn::PluginSet set)
      : OfPlugin(std::move(name), std::move(set)) {
    check_whole(name_, set_);
    inputs_ = checked_inputs(name_, set_);
  }

  data::ImageShape shape() const override {
    data::ImageShape row{.channels = 1, .height = 1, .width = 0};
    for (const data::TensorForm& input : inputs_) row.width += input.elements();
    return row;
  }
  std::vector<data::TensorForm> inputs() const override { return inputs_; }

  void read(std::span<const data::SampleKey> keys, const Batch& out) const override {
    const std::int64_t count = std::ssize(keys);
    check(data::has_form(out, count, {.inputs = inputs_}) ||
              data::has_form(out, count, {.dtype = torch::kBFloat16, .inputs = inputs_}),
        "plugin: ", name_, ": the batch must be one of its ", inputs_.size(), " inputs");
    std::vector<InputRows> rows;
    const auto tensors = out.input_tensors();
    for (std::size_t i = 0; i < inputs_.size(); ++i) rows.emplace_back(tensors[i], inputs_[i]);
    std::vector<void*> memory(rows.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::int64_t index = keys[i].index;
      data::check_index(index, set_.size);
      std::ranges::transform(rows, memory.begin(), [i](InputRows& row) { return row.begin(i); });
      read_with([&] { set_.read_inputs(index, {set_.inputs, memory}); }, index);
      for (const InputRows& row : rows) row.end(i);
      out.target().data_ptr<std::int64_t>()[i] = *label(index);
    }
  }

 private:
  std::vector<data::TensorForm> inputs_;
};

/// A set of a plugin whose samples are images.
class PluginSamples final : public OfPlugin<data::SingleSamples> {
 public:
  PluginSamples(std::string name, nn::PluginSet set) : OfPlugin(std::move(name), std::move(set)) {
    const auto [channels, height, width] = set_.shape;
    if (set_.size < 1 || set_.classes < 1 || std::ranges::min(set_.shape) < 1 || !set_.label ||
        !set_.read)
      throw DataError(
          concat("plugin: ", name_, " needs samples, classes, a shape, label and read: ", set_.size,
              " samples of ", set_.classes, " classes, ", channels, " x ", height, " x ", width));
  }

  data::ImageShape shape() const override {
    return {.channels = set_.shape[0], .height = set_.shape[1], .width = set_.shape[2]};
  }

 private:
  std::int64_t read_one(const data::SampleKey& key, std::span<float> out) const override {
    data::check_index(key.index, set_.size);
    read_with([&] { set_.read(key.index, out); }, key.index);
    return *label(key.index);
  }
};

data::SamplesPointer plugin_samples(std::string name, const nn::PluginSet& set) {
  if (set.inputs.empty()) return std::make_shared<PluginSamples>(std::move(name), set);
  return std::make_shared<PluginInputSamples>(std::move(name), set);
}

nn::PluginParts opened(const nn::PluginData& data, const std::string& folder) {
  try {
    return data.open(folder);
  } catch (const std::exception& error) {
    throw DataError(concat("plugin: ", data.name, " cannot be opened: ", error.what()));
  }
}

}  // namespace

std::optional<Datasets> open_plugin_data(const TrainOptions& options) {
  const auto& sets = nn::plugin_sets();
  const auto found = std::ranges::find(sets, options.data.name, &nn::PluginData::name);
  if (found == sets.end()) return std::nullopt;
  check(options.loading.augment == Augment::kNone && !options.loading.image_size &&
            !options.data.sequence_length,
      "train: --augment, --image-size and --sequence-length are not for a plugin's data");
  const nn::PluginParts parts = opened(*found, options.data.directory);
  const data::SamplesPointer train = plugin_samples(found->name + " train", parts.train);
  Datasets source{.train = train, .unaugmented = train};
  for (std::int64_t index = 0; index < train->size(); ++index)
    source.labels.push_back(*train->label(index));
  source.test = plugin_samples(found->name + " test", parts.test);
  if (source.train->inputs() != source.test->inputs())
    throw DataError(concat("plugin: ", found->name,
        ": train and test must have the same inputs: ", source.train->inputs().size(), " and ",
        source.test->inputs().size(), " with names, shapes and types"));
  return source;
}

}  // namespace lockstep
