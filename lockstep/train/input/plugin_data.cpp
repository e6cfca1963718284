#include "lockstep/train/input/plugin_data.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/train/input/plugin_samples.h"

namespace lockstep {
namespace {

/// A set of a plugin whose samples are images.
class PluginSamples final : public data::SingleSamples {
 public:
  PluginSamples(std::string name, nn::PluginSet set)
      : name_(std::move(name)), set_(std::move(set)) {
    const auto [channels, height, width] = set_.shape;
    if (set_.size < 1 || set_.classes < 1 || std::ranges::min(set_.shape) < 1 || !set_.label ||
        !set_.read)
      throw DataError(
          concat("plugin: ", name_, " needs samples, classes, a shape, label and read: ", set_.size,
              " samples of ", set_.classes, " classes, ", channels, " x ", height, " x ", width));
  }

  std::int64_t size() const override { return set_.size; }
  std::int64_t classes() const override { return set_.classes; }
  data::ImageShape shape() const override {
    return {.channels = set_.shape[0], .height = set_.shape[1], .width = set_.shape[2]};
  }
  std::string name(std::int64_t index) const override { return concat(name_, " ", index); }

  std::optional<std::int64_t> label(std::int64_t index) const override {
    return plugin_label(set_, index, name(index));
  }

 private:
  std::int64_t read_one(const data::SampleKey& key, std::span<float> out) const override {
    data::check_index(key.index, set_.size);
    try {
      set_.read(key.index, out);
    } catch (const std::exception& error) {
      throw DataError(concat("plugin: ", name(key.index), " cannot be read: ", error.what()));
    }
    return *label(key.index);
  }

  std::string name_;
  nn::PluginSet set_;
};

data::SamplesPointer plugin_samples(std::string name, const nn::PluginSet& set) {
  if (set.inputs.empty()) return std::make_shared<PluginSamples>(std::move(name), set);
  return std::make_shared<PluginInputSamples>(std::move(name), set);
}

void check_alike(const std::string& name, const data::Samples& train, const data::Samples& test) {
  if (train.inputs() == test.inputs()) return;
  throw DataError(concat("plugin: ", name, ": train and test must have the same inputs: ",
      train.inputs().size(), " and ", test.inputs().size(), " with names, shapes and types"));
}

nn::PluginParts opened(const nn::PluginData& data, const std::string& folder) {
  try {
    return data.open(folder);
  } catch (const std::exception& error) {
    throw DataError(concat("plugin: ", data.name, " cannot be opened: ", error.what()));
  }
}

}  // namespace

std::optional<DatasetSource> open_plugin_data(const TrainOptions& options) {
  const auto& sets = nn::plugin_sets();
  const auto found = std::ranges::find(sets, options.data.name, &nn::PluginData::name);
  if (found == sets.end()) return std::nullopt;
  check(options.loading.augment == Augment::kNone && !options.loading.image_size,
      "train: --augment and --image-size are not for a plugin's data");
  const nn::PluginParts parts = opened(*found, options.data.directory);
  const data::SamplesPointer train = plugin_samples(found->name + " train", parts.train);
  DatasetSource source{.train = train, .unaugmented = train};
  for (std::int64_t index = 0; index < train->size(); ++index)
    source.labels.push_back(*train->label(index));
  source.test = plugin_samples(found->name + " test", parts.test);
  check_alike(found->name, *source.train, *source.test);
  return source;
}

}  // namespace lockstep
