#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/nn/models/model.h"
#include "lockstep/nn/models/plugin.h"

namespace lockstep::nn {

/// A plugin's net as one of ours: it has the parameters, buffers and sub-modules of the plugin's
/// module under the same names, and computes by its forward.
class PluginModelImpl final : public ModelImpl {
 public:
  /// Makes the net. Throws InvalidArgument with the plugin's words if its factory throws.
  PluginModelImpl(const PluginModel& plugin, std::int64_t classes);

  /// Throws InvalidArgument if the net returns anything but [N, classes].
  torch::Tensor forward(torch::Tensor images) override { return forward_all({images}); }

  /// Returns the plugin's chain, or all of it as one layer.
  Layers layers() const override;

  std::vector<std::size_t> takes() const override { return net_.takes; }

  /// Returns the plugin's module, and its forward, whose output is not checked.
  const PluginNet& net() const { return net_; }

  void train(bool on = true) override;

  /// Makes another one by the factory, which draws from the default generator, and copies the
  /// state.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override;

 private:
  torch::Tensor forward_all(std::vector<torch::Tensor> inputs) override;
  torch::Tensor checked(torch::Tensor scores, std::int64_t batch) const;

  PluginModel plugin_;
  std::int64_t classes_;
  PluginNet net_;
};

/// Returns a plugin's loss of a batch, computed in the type of the scores, whatever Autocast is on.
///
/// Throws InvalidArgument with the plugin's words if its function throws, and if it returns
/// anything but one number on the scores' device that has a gradient where the scores have one. A
/// lack of memory stays what it is.
torch::Tensor loss_by(
    const PluginLoss& loss, const torch::Tensor& scores, const torch::Tensor& labels);

/// Loads a plugin, from then on make_model() knows its nets. It stays for the life of the process.
/// Not for several threads at a time.
///
/// Throws InvalidArgument if the file is no shared library or no plugin, was made for another
/// LibTorch or Lockstep, offers nothing, or a name that is taken.
void load_plugin(const std::string& path);

/// Returns the nets of the plugins that were loaded.
const std::vector<PluginModel>& plugin_models();

/// Returns their data sets.
const std::vector<PluginData>& plugin_sets();

/// Returns their losses.
const std::vector<PluginLoss>& plugin_losses();

/// Returns their tasks.
const std::vector<PluginTask>& plugin_tasks();

/// Returns whether an error is none of a plugin's: a lack of memory, a device or another rank that
/// fails, or one that says already what is wrong.
bool is_from_outside(const std::exception& error);

}  // namespace lockstep::nn
