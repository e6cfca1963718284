#pragma once

#include <optional>
#include <string>

#include <torch/types.h>

#include "lockstep/nn/models/catalogue.h"
#include "lockstep/nn/models/plugin.h"

namespace lockstep {

/// A loss of scores [samples, classes] and labels [samples], computed in float; of scores in double
/// in double, but a plugin's.
///
/// A sample labelled kIgnoredTarget adds nothing, but is counted among the samples. So the losses
/// of the parts of a batch, each times its share of the samples, add up to that of the batch,
/// however many of them are ignored; if all labels of a part are, its loss is 0.
class Loss {
 public:
  /// Takes the loss of this name. `smoothing` spreads that share of each label over all classes, as
  /// PyTorch's label_smoothing, in cross entropy. Throws InvalidArgument with the names
  /// that there are for another one.
  explicit Loss(const std::string& name = nn::kCrossEntropy, double smoothing = 0);

  /// Returns the sum over the samples, divided by their number.
  torch::Tensor mean(const torch::Tensor& scores, const torch::Tensor& labels) const;

  /// Returns the sum over the samples.
  torch::Tensor sum(const torch::Tensor& scores, const torch::Tensor& labels) const;

  /// Returns the loss of each sample. A plugin's is asked for one sample at a time.
  torch::Tensor of_each(const torch::Tensor& scores, const torch::Tensor& labels) const;

 private:
  torch::Tensor cross_entropy(
      const torch::Tensor& scores, const torch::Tensor& labels, at::Reduction::Reduction how) const;
  torch::Tensor plugin_sum(const torch::Tensor& scores, const torch::Tensor& labels) const;

  double smoothing_;
  bool is_squared_ = false;
  std::optional<nn::PluginLoss> plugin_;
};

}  // namespace lockstep
