#include "lockstep/parallel/sync_batch_norm/channel_statistics.h"

#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace lockstep {
namespace {

bool is_half(const torch::Tensor& input) {
  return input.scalar_type() == torch::kHalf || input.scalar_type() == torch::kBFloat16;
}

/// Gives mean and biased variance by the kernel of batch norm itself, which knows all memory
/// formats.
std::tuple<torch::Tensor, torch::Tensor> mean_and_variance(const torch::Tensor& input) {
  if (!is_half(input)) return at::batch_norm_update_stats(input, {}, {}, 0);
  // Statistics come in the type of the running ones: without any, they would be halves.
  const auto running = at::zeros({input.size(1)}, input.options().dtype(torch::kFloat));
  return at::batch_norm_update_stats(input, running, running.clone(), 0);
}

}  // namespace

std::int64_t values_per_channel(const torch::Tensor& input) {
  return input.size(1) == 0 ? 0 : input.numel() / input.size(1);
}

ChannelStatistics channel_statistics(const torch::Tensor& input) {
  const auto count = values_per_channel(input);
  const auto options = input.options().dtype(torch::kDouble);
  const auto counts = at::full({1}, static_cast<double>(count), options);
  if (count == 0) {
    return {counts, at::zeros({input.size(1)}, options), at::zeros({input.size(1)}, options)};
  }
  const auto [mean, variance] = mean_and_variance(input);
  return {counts, mean.to(torch::kDouble), variance.to(torch::kDouble) * counts};
}

torch::Tensor to_row(const ChannelStatistics& statistics) {
  return at::cat({statistics.count, statistics.mean, statistics.squares});
}

ChannelStatistics merge_rows(const torch::Tensor& rows) {
  const auto channels = (rows.size(1) - 1) / 2;
  const auto counts = rows.narrow(1, 0, 1);
  const auto means = rows.narrow(1, 1, channels);
  const auto squares = rows.narrow(1, 1 + channels, channels);
  const auto count = counts.sum(0);
  const auto mean = (counts * means).sum(0) / count;
  return {count, mean, (squares + counts * (means - mean).square()).sum(0)};
}

}  // namespace lockstep
