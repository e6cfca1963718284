#pragma once

#include <lockstep/lockstep.h>

#include <torch/torch.h>

/// Sums of loss and hits, over batches and then over ranks. Add your own measures here.
class Metrics {
 public:
  /// Counts a batch with the mean of its losses.
  void add(const torch::Tensor& loss, const torch::Tensor& scores, const torch::Tensor& target);

  /// Adds the sums of all ranks. A collective.
  void sum_over(const lockstep::ProcessGroup& world);

  double loss() const { return share(1); }
  double accuracy() const { return share(2); }
  /// Returns the share of images whose class is among the five with the highest scores.
  double accuracy5() const { return share(3); }

 private:
  double share(int index) const { return (sums_[index] / sums_[0]).item<double>(); }

  torch::Tensor sums_ = torch::zeros({4}, torch::kDouble);  // images, losses, hits, hits among five
};
