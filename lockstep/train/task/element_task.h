#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/core/enum_names.h"
#include "lockstep/train/task/task.h"

namespace lockstep {

/// A loss of each element of an output and its target: PyTorch's of these names, `huber` with a
/// delta of 1, `bce` of logits.
enum class ElementLoss { kMse, kL1, kHuber, kBce };
constexpr auto names_of(ElementLoss) {
  using Loss = ElementLoss;
  return std::array{EnumName{Loss::kMse, "mse"}, EnumName{Loss::kL1, "l1"},
      EnumName{Loss::kHuber, "huber"}, EnumName{Loss::kBce, "bce"}};
}

/// Returns the loss of each element, or their sum or mean.
torch::Tensor element_loss(ElementLoss loss, const torch::Tensor& output,
    const torch::Tensor& target, at::Reduction::Reduction how);

/// Returns an output in the shape of its target: of the same sizes, a row [N, numbers] for each
/// sample, or [N, 1] for a target [N]; at least in float. Throws InvalidArgument with both shapes
/// for another one.
torch::Tensor fitted(const torch::Tensor& output, const torch::Tensor& target);

/// A task whose target has a number for each of the output. Measures the mean absolute error and
/// the root of the mean squared error.
class ElementTask : public Task {
 public:
  explicit ElementTask(ElementLoss loss) : loss_(loss) {}

  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& target) const override;
  torch::Tensor losses(const torch::Tensor& output, const torch::Tensor& target) const override;
  Findings measure(const torch::Tensor& output, const torch::Tensor& target) const override;

 protected:
  /// The sums: errors without their signs; then squared errors, of all outputs or of each.
  enum Own : std::int64_t { kAbsolute = Findings::kOwn, kSquared };

  void score(const Findings& all, Evaluation& result) const override;

 private:
  ElementLoss loss_;
};

/// Numbers to be predicted, of any shape. Measures R2 too, the mean over the numbers of a sample,
/// where it has no more than kMostExplained: that of scikit-learn.
class Regression final : public ElementTask {
 public:
  static constexpr std::int64_t kMostExplained = 4096;

  using ElementTask::ElementTask;
  Findings measure(const torch::Tensor& output, const torch::Tensor& target) const override;

 private:
  void score(const Findings& all, Evaluation& result) const override;
};

/// The input itself is to be made again. With `bce` it has numbers from 0 to 1, and the output is
/// their logits.
class Reconstruction final : public ElementTask {
 public:
  using ElementTask::ElementTask;
  torch::Tensor target(const Batch& batch) const override { return batch.input(); }
  bool compares_inputs() const override { return true; }
};

}  // namespace lockstep
