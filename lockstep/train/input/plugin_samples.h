#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/samples.h"
#include "lockstep/nn/models/plugin.h"

namespace lockstep {

/// A set of a plugin that names the inputs of its samples.
class PluginInputSamples final : public data::Samples {
 public:
  /// Throws DataError unless the set is whole: names and types that there are, sizes from 1.
  PluginInputSamples(std::string name, nn::PluginSet set);

  std::int64_t size() const override { return set_.size; }
  std::int64_t classes() const override { return set_.classes; }
  data::ImageShape shape() const override;
  std::vector<data::InputForm> inputs() const override { return inputs_; }
  std::string name(std::int64_t index) const override;
  std::optional<std::int64_t> label(std::int64_t index) const override;
  void read(std::span<const data::SampleKey> keys, const Batch& out) const override;

 private:
  void read_one(std::int64_t index, std::span<void* const> memory) const;

  std::string name_;
  nn::PluginSet set_;
  std::vector<data::InputForm> inputs_;
};

/// Returns the class of a sample of a plugin's set; throws DataError if it is none of its classes.
std::int64_t plugin_label(
    const nn::PluginSet& set, std::int64_t index, const std::string& sample_name);

}  // namespace lockstep
