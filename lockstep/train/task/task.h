#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/batch.h"
#include "lockstep/record/evaluation_result.h"

namespace lockstep {

/// The findings about predictions, in a form in which those of samples, batches and ranks are put
/// together exactly.
///
/// The first of the sums are those that every task has; its own follow.
struct Findings {
  enum Sum : std::int64_t { kLoss, kCounted, kSamples, kOwn };

  torch::Tensor sums;       ///< [sums] as double; they add up
  torch::Tensor rows = {};  ///< [rows, numbers] as double, what does not add up; undefined: nothing
};

/// Returns numbers of a device as one tensor of double, for the sums of findings.
torch::Tensor sums_of(const std::vector<torch::Tensor>& numbers);

/// Returns an output in float, unless it is in double.
inline torch::Tensor at_least_float(const torch::Tensor& output) {
  return output.scalar_type() == torch::kDouble ? output : output.to(torch::kFloat);
}

/// Puts together the findings of batches, without waiting for a device.
class FindingsSum {
 public:
  void add(const Findings& batch);

  /// Returns the findings of all ranks, in the host's memory, their rows in the order of the ranks;
  /// a rank may have none. A collective.
  Findings over_all(const ProcessGroup& world) const;

 private:
  torch::Tensor sums_;
  std::vector<torch::Tensor> rows_;
};

/// The scores of a model on a data set.
struct Evaluation {
  Scores scores;
  std::int64_t samples = 0;  ///< of all ranks together
  std::vector<ClassScores> of_classes = {};
};

/// The task of a net: its loss, and what is measured. A value: its functions are pure, and several
/// threads may call them.
///
/// Losses are sums over the elements of a target, divided by their number: samples, tokens,
/// pixels. One that is marked by kIgnoredTarget adds nothing, but is among that number in training,
/// so parts of a batch, weighted by their shares, add up to the whole; evaluations leave it out.
class Task {
 public:
  virtual ~Task() = default;

  /// Returns what the net takes of a batch.
  virtual std::vector<torch::Tensor> inputs(const Batch& batch) const {
    return batch.input_tensors();
  }

  /// Returns what it takes where it may give losses in place of the output that they are made of.
  virtual std::vector<torch::Tensor> measured_inputs(const Batch& batch) const {
    return inputs(batch);
  }

  /// Returns what the net's output is compared with.
  virtual torch::Tensor target(const Batch& batch) const { return batch.target(); }

  /// Returns whether the loss is of the inputs, too: they keep their precision, whatever the net
  /// computes with.
  virtual bool compares_inputs() const { return false; }

  /// Returns whether loss() takes scores that are not computed, see Note [Scores in chunks].
  virtual bool takes_deferred_scores() const { return false; }

  /// Returns the loss of a batch in training, with a gradient.
  virtual torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& target) const = 0;

  /// Returns the loss of each sample, as evaluations measure it.
  virtual torch::Tensor losses(const torch::Tensor& output, const torch::Tensor& target) const = 0;

  /// Measures a batch, where it was computed.
  virtual Findings measure(const torch::Tensor& output, const torch::Tensor& target) const = 0;

  /// Returns the scores that findings come to.
  Evaluation evaluation(const Findings& all) const;

  /// Returns the class that each sample is taken for; undefined where samples have no class.
  virtual torch::Tensor predicted(const torch::Tensor& /*output*/) const { return {}; }

 private:
  /// Sets what follows from findings in the host's memory beside the loss.
  virtual void score(const Findings& all, Evaluation& result) const = 0;
};

using TaskPointer = std::shared_ptr<const Task>;

}  // namespace lockstep
