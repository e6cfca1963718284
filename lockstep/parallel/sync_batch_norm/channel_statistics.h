#pragma once

#include <cstdint>

#include <torch/types.h>

namespace lockstep {

/// Is what a batch says of each channel: enough to tell mean and variance of several batches
/// together.
struct ChannelStatistics {
  torch::Tensor count;    ///< double [1]: values a channel
  torch::Tensor mean;     ///< double [C]
  torch::Tensor squares;  ///< double [C]: sum of squared deviations from the mean
};

/// Counts the values a channel of a batch [N, C, ...].
std::int64_t values_per_channel(const torch::Tensor& input);

/// Computes the statistics of a batch [N, C, ...], which may be empty.
ChannelStatistics channel_statistics(const torch::Tensor& input);

/// Writes statistics as one row of 2 C + 1 doubles, and reads rows [W, 2 C + 1] back as the
/// statistics of all W batches together. Merging deviations instead of sums of squares keeps the
/// variance of values far from zero.
torch::Tensor to_row(const ChannelStatistics& statistics);
ChannelStatistics merge_rows(const torch::Tensor& rows);

}  // namespace lockstep
