#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/train/task/task.h"

namespace lockstep {

/// The task of a net that computes its loss itself, and other numbers by name: it takes the inputs
/// and the targets of a batch, and returns a row [samples, loss, numbers ...] for each part of the
/// batch, as ModelImpl::numbers() has it. The numbers of an evaluation are means over its samples;
/// one called `accuracy` is the score of that name.
class Program final : public Task {
 public:
  /// Throws InvalidArgument for names that files of a run use for something else.
  explicit Program(std::vector<std::string> numbers);

  /// Returns all tensors of a batch, the inputs first.
  static std::vector<torch::Tensor> tensors(const Batch& batch);

  /// Returns the names of --eval-metric for what such a net measures beside its loss.
  static std::vector<std::string> metrics(const std::vector<std::string>& numbers);

  std::vector<torch::Tensor> inputs(const Batch& batch) const override { return tensors(batch); }

  /// Returns nothing to compare with, but of the batch's size.
  torch::Tensor target(const Batch& batch) const override;
  bool compares_inputs() const override { return true; }

  torch::Tensor loss(const torch::Tensor& rows, const torch::Tensor& target) const override;

  /// Returns an undefined tensor: nobody knows the losses of single samples.
  torch::Tensor losses(const torch::Tensor& /*rows*/, const torch::Tensor&) const override {
    return {};
  }
  Findings measure(const torch::Tensor& rows, const torch::Tensor& target) const override;

 private:
  void check_rows(const torch::Tensor& rows, const torch::Tensor& target) const;
  void score(const Findings& all, Evaluation& result) const override;

  std::vector<std::string> numbers_;
};

}  // namespace lockstep
