#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/record/confusion.h"
#include "lockstep/record/evaluation_result.h"
#include "lockstep/train/optim/loss.h"

namespace lockstep {

/// The fates of the samples of an evaluation: for evaluate(), which shows its batches in the order
/// of the set.
class Predictions {
 public:
  /// Keeps the `worst` samples with the largest losses; of equal ones the first.
  Predictions(std::int64_t classes, std::size_t worst, Loss loss = Loss())
      : confusion_(classes), most_(worst), loss_(std::move(loss)) {}

  /// Takes scores [samples, classes] and labels; those marked kIgnoredTarget do not count. Waits
  /// for the device.
  void add(const torch::Tensor& scores, const torch::Tensor& labels);

  const Confusion& confusion() const { return confusion_; }

  /// Returns the worst first. A loss that is no number is worse than any.
  const std::vector<Judgement>& worst() const { return worst_; }

 private:
  void keep_worst();

  Confusion confusion_;
  std::size_t most_;
  Loss loss_;
  std::int64_t seen_ = 0;
  std::vector<Judgement> worst_;
};

}  // namespace lockstep
