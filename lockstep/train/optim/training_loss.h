#pragma once

#include <torch/types.h>

#include "lockstep/train/options/options.h"

namespace lockstep {

/// Returns the cross entropy of scores [samples, classes] with labels [samples], in float, divided
/// by the samples. The options' smoothing spreads that share of each label over all classes, as
/// PyTorch's label_smoothing.
///
/// A sample labelled kIgnoredTarget adds nothing, but is counted among the samples. So the losses
/// of the parts of a batch, each times its share of the samples, add up to that of the batch,
/// however many of them are ignored; if all labels of a part are, its loss is 0.
torch::Tensor training_loss(
    const torch::Tensor& scores, const torch::Tensor& labels, const TrainOptions& options);

}  // namespace lockstep
