#pragma once

#include <torch/types.h>

namespace lockstep {

/// Gives the cross entropy of scores [samples, classes] with labels [samples], in float, divided by
/// the samples; `smoothing` spreads that share of each label over all classes, as PyTorch's
/// label_smoothing.
///
/// A sample labelled -100 adds nothing, but is counted among the samples. So the losses of the
/// parts of a batch, each times its share of the samples, add up to that of the batch whatever is
/// labelled so, and a part of none but such samples has the loss 0.
torch::Tensor training_loss(
    const torch::Tensor& scores, const torch::Tensor& labels, double smoothing);

}  // namespace lockstep
