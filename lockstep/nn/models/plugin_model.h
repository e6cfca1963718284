#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

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

}  // namespace lockstep::nn
