#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "lockstep/train/task/task.h"

namespace lockstep {

/// A task whose target has a class for each of many elements of a sample. Its loss is cross
/// entropy, with label smoothing in training alone.
class ClassOfEach : public Task {
 public:
  explicit ClassOfEach(double smoothing) : smoothing_(smoothing) {}

  torch::Tensor loss(const torch::Tensor& scores, const torch::Tensor& target) const override;
  torch::Tensor losses(const torch::Tensor& scores, const torch::Tensor& target) const override;
  Findings measure(const torch::Tensor& scores, const torch::Tensor& target) const override;

 protected:
  double smoothing() const { return smoothing_; }

  /// Returns the loss of each element of a target, without smoothing.
  virtual torch::Tensor losses_of_elements(
      const torch::Tensor& scores, const torch::Tensor& target) const;

  /// Returns scores [N, classes, elements ...] for a target [N, elements ...], at least in float.
  /// Throws InvalidArgument with both shapes where they are not.
  virtual torch::Tensor by_class(
      const torch::Tensor& scores, const torch::Tensor& target) const = 0;

 private:
  double smoothing_;
};

/// The next token at each place: scores [N, length, vocabulary] and targets [N, length]; or [N,
/// vocabulary] and [N]. Measures the perplexity, and where a token is a byte the bits for each. A
/// net that `gives_losses` is measured by those of with_next_tokens(), Note [Scores in chunks], and
/// may give their sum in training.
class Tokens : public ClassOfEach {
 public:
  explicit Tokens(double smoothing = 0, bool are_bytes = false, bool gives_losses = false)
      : ClassOfEach(smoothing), are_bytes_(are_bytes), gives_losses_(gives_losses) {}

  std::vector<torch::Tensor> measured_inputs(const Batch& batch) const override;
  bool takes_deferred_scores() const override { return true; }
  torch::Tensor loss(const torch::Tensor& scores, const torch::Tensor& target) const override;

 private:
  torch::Tensor losses_of_elements(
      const torch::Tensor& output, const torch::Tensor& target) const override;
  torch::Tensor by_class(const torch::Tensor& scores, const torch::Tensor& target) const override;
  void score(const Findings& all, Evaluation& result) const override;

  bool are_bytes_, gives_losses_;
};

/// A class for each pixel: scores [N, classes, height, width] and targets [N, height, width], or of
/// any number of dimensions. Measures the share of pixels that are right, and the mean of the
/// intersection over union over the classes that are there or predicted.
class Segmentation final : public ClassOfEach {
 public:
  using ClassOfEach::ClassOfEach;
  Findings measure(const torch::Tensor& scores, const torch::Tensor& target) const override;

 private:
  torch::Tensor by_class(const torch::Tensor& scores, const torch::Tensor& target) const override;
  void score(const Findings& all, Evaluation& result) const override;
};

}  // namespace lockstep
