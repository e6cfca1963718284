#pragma once

#include <string>

#include "lockstep/nn/models/catalogue.h"
#include "lockstep/train/optim/loss.h"
#include "lockstep/train/task/task.h"

namespace lockstep {

/// One class for each sample: scores [samples, classes] and labels [samples] in int64. Measures the
/// shares of samples whose highest score is right, and one of the five highest.
class Classification final : public Task {
 public:
  /// Takes one of the losses that Loss knows; `smoothing` is for training alone.
  explicit Classification(const std::string& loss = nn::kCrossEntropy, double smoothing = 0)
      : trained_(loss, smoothing), measured_(loss) {}

  torch::Tensor loss(const torch::Tensor& scores, const torch::Tensor& labels) const override {
    return trained_.mean(scores, labels);
  }
  torch::Tensor losses(const torch::Tensor& scores, const torch::Tensor& labels) const override {
    return measured_.of_each(scores, labels);
  }
  Findings measure(const torch::Tensor& scores, const torch::Tensor& labels) const override;
  torch::Tensor predicted(const torch::Tensor& scores) const override { return scores.argmax(1); }

 private:
  void score(const Findings& all, Evaluation& result) const override;

  Loss trained_, measured_;
};

}  // namespace lockstep
