#include "lockstep/nn/fused/batch_statistics.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>

#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/in_parallel.h"

namespace lockstep::nn::fused {
namespace {

constexpr std::int64_t kRowsOfAPart = 256, kMostParts = 32;

std::int64_t parts_of_rows(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / kRowsOfAPart, 1, kMostParts);
}

Range part_at(std::int64_t part, std::int64_t parts, std::int64_t rows) {
  return {rows * part / parts, rows * (part + 1) / parts};
}

// By Chan's formulas.
void merge(const PartialSums& sums, std::int64_t part, std::int64_t before, std::int64_t channels,
    double* mean, double* squares) {
  const auto own = static_cast<double>(sums.rows_of(part)), others = static_cast<double>(before);
  const double weight = own / (own + others);
  const double *const first = sums.first(part), *const second = sums.second(part);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const double delta = first[channel] - mean[channel];
    mean[channel] += delta * weight;
    squares[channel] += second[channel] + delta * delta * others * weight;
  }
}

}  // namespace

at::Tensor doubles(at::IntArrayRef sizes) { return at::empty(sizes, on_host(at::kDouble)); }

// What is computed for a channel takes loops below: operators of so few values mostly call.
at::Tensor new_floats(std::int64_t channels) { return at::empty({channels}, on_host(at::kFloat)); }

const float* floats(const at::Tensor& tensor) { return tensor.const_data_ptr<float>(); }
float* to_floats(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }

PixelRows pixel_rows_of(const at::Tensor& input) {
  const bool is_float = input.scalar_type() == at::kFloat;
  return {is_float ? Element::kFloat : Element::kBFloat16, input.size(1)};
}

PartialSums::PartialSums(const BatchNormKernel& kernel, std::int64_t rows, std::int64_t channels)
    : kernel_(kernel),
      rows_(rows),
      channels_(channels),
      parts_(parts_of_rows(rows)),
      memory_(doubles({parts_, 2, channels})) {}

void PartialSums::compute(Body body) {
  auto* const data = memory_.mutable_data_ptr<double>();
  in_parallel(parts_, [&](Range parts) {
    auto scratch = at::empty({kernel_.scratch_floats(channels_)}, on_host(at::kFloat));
    for (std::int64_t part = parts.begin; part < parts.end; ++part) {
      double* const first = data + part * 2 * channels_;
      body(part_at(part, parts_, rows_), first, first + channels_,
          scratch.mutable_data_ptr<float>());
    }
  });
}

at::Tensor PartialSums::total() const {
  auto sums = doubles({2, channels_}).zero_();
  auto* const to = sums.mutable_data_ptr<double>();
  for (std::int64_t part = 0; part < parts_; ++part) {
    const double* const from = first(part);
    for (std::int64_t i = 0; i < 2 * channels_; ++i) to[i] += from[i];
  }
  return sums;
}

std::int64_t PartialSums::rows_of(std::int64_t part) const {
  const Range range = part_at(part, parts_, rows_);
  return range.end - range.begin;
}

BatchStatistics statistics_of(const BatchNormKernel& kernel, const at::Tensor& input) {
  const std::int64_t channels = input.size(1), count = input.numel() / channels;
  PartialSums sums(kernel, count, channels);
  sums.compute([&](Range range, double* mean, double* squares, float* scratch) {
    kernel.collect(pixel_rows_of(input), input.const_data_ptr(), range, {mean, squares}, scratch);
  });
  auto mean = doubles({channels}).zero_(), squares = doubles({channels}).zero_();
  std::int64_t before = 0;
  for (std::int64_t part = 0; part < sums.parts(); before += sums.rows_of(part++))
    merge(sums, part, before, channels, mean.mutable_data_ptr<double>(),
        squares.mutable_data_ptr<double>());
  return {mean, squares, count};
}

BatchNormAffine affine_of(const BatchStatistics& statistics, const at::Tensor& weight,
    const at::Tensor& bias, double eps) {
  const std::int64_t channels = weight.numel();
  const BatchNormAffine result{new_floats(channels), new_floats(channels), new_floats(channels)};
  const double *const mean = statistics.mean.const_data_ptr<double>(),
                      *const squares = statistics.squares.const_data_ptr<double>();
  const float *const factor = floats(weight), *const addend = floats(bias);
  float *const scale = to_floats(result.scale), *const shift = to_floats(result.shift),
               *const inverses = to_floats(result.inverse_deviation);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const double variance = squares[channel] / static_cast<double>(statistics.count);
    const double inverse = 1 / std::sqrt(variance + eps), wide = factor[channel] * inverse;
    inverses[channel] = static_cast<float>(inverse);
    scale[channel] = static_cast<float>(wide);
    shift[channel] = static_cast<float>(addend[channel] - mean[channel] * wide);
  }
  return result;
}

void update_running(const at::Tensor& running_mean, const at::Tensor& running_var,
    const BatchStatistics& statistics, double momentum) {
  const auto move = [&](const at::Tensor& running, const at::Tensor& batch, double share) {
    const auto* const values = batch.const_data_ptr<double>();
    float* const moved = to_floats(running);
    for (std::int64_t channel = 0; channel < running.numel(); ++channel)
      moved[channel] =
          static_cast<float>(moved[channel] * (1 - momentum) + values[channel] * share * momentum);
  };
  move(running_mean, statistics.mean, 1);
  move(running_var, statistics.squares, 1 / static_cast<double>(statistics.count - 1));
}

OfSums of_sums(const BatchNormSums& given) {
  const std::int64_t channels = given.weight.numel();
  const OfSums result{new_floats(channels), new_floats(channels), new_floats(channels),
      new_floats(channels), new_floats(channels)};
  const double* const gradients = given.sums.const_data_ptr<double>();
  const double* const products = gradients + channels;
  const double* const mean = given.mean.const_data_ptr<double>();
  const float *const rounded = floats(given.rounded_mean), *const factor = floats(given.weight),
                     *const inverses = floats(given.inverse_deviation);
  float *const weight = to_floats(result.weight), *const bias = to_floats(result.bias),
               *const of_gradient = to_floats(result.of_gradient),
               *const of_input = to_floats(result.of_input),
               *const constant = to_floats(result.constant);
  const auto count = static_cast<double>(given.count);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const double inverse = inverses[channel], scale = factor[channel] * inverse;
    const double off = mean[channel] - rounded[channel];
    const double product = products[channel] - gradients[channel] * off;
    const double slope = -scale * inverse * inverse * product / count;
    const double share = -scale * gradients[channel] / count;
    weight[channel] = static_cast<float>(product * inverse);
    bias[channel] = static_cast<float>(gradients[channel]);
    of_gradient[channel] = static_cast<float>(scale);
    of_input[channel] = static_cast<float>(slope);
    constant[channel] = static_cast<float>(share - slope * off);
  }
  return result;
}

}  // namespace lockstep::nn::fused
