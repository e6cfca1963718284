#include "lockstep/nn/fused/batch_norm_passes.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/FunctionRef.h>

#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/in_parallel.h"

namespace lockstep::nn::fused {
namespace {

constexpr std::int64_t kRowsOfAPart = 256, kMostParts = 32;

std::int64_t parts_of(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / kRowsOfAPart, 1, kMostParts);
}

RowRange part_at(std::int64_t part, std::int64_t parts, std::int64_t rows) {
  return {rows * part / parts, rows * (part + 1) / parts};
}

void over_rows(std::int64_t rows, c10::function_ref<void(RowRange)> body) {
  in_parallel(rows, [&](std::int64_t begin, std::int64_t end) { body({begin, end}); });
}

at::Tensor doubles(at::IntArrayRef sizes) { return at::empty(sizes, on_host(at::kDouble)); }

at::Tensor channels_last(const at::Tensor& tensor) {
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

const float* floats(const at::Tensor& tensor) { return tensor.const_data_ptr<float>(); }

/// Two sums a channel of each part, [parts, 2, C].
class PartialSums {
 public:
  PartialSums(const BatchNormKernel& kernel, std::int64_t rows, std::int64_t channels)
      : kernel_(kernel),
        rows_(rows),
        channels_(channels),
        parts_(parts_of(rows)),
        memory_(doubles({parts_, 2, channels})) {}

  using Body = c10::function_ref<void(RowRange, double*, double*, float*)>;

  void compute(Body body) {
    auto* const data = memory_.mutable_data_ptr<double>();
    in_parallel(parts_, [&](std::int64_t begin, std::int64_t end) {
      auto scratch = at::empty({kernel_.scratch_floats(channels_)}, on_host(at::kFloat));
      for (std::int64_t part = begin; part < end; ++part) {
        double* const first = data + part * 2 * channels_;
        body(part_at(part, parts_, rows_), first, first + channels_,
            scratch.mutable_data_ptr<float>());
      }
    });
  }

  /// Returns [2, C], added in order.
  at::Tensor total() const {
    auto sums = memory_[0].clone();
    for (std::int64_t part = 1; part < parts_; ++part) sums += memory_[part];
    return sums;
  }

  std::int64_t parts() const { return parts_; }
  std::int64_t rows_of(std::int64_t part) const {
    const RowRange range = part_at(part, parts_, rows_);
    return range.end - range.begin;
  }
  const double* first(std::int64_t part) const {
    return memory_.const_data_ptr<double>() + part * 2 * channels_;
  }
  const double* second(std::int64_t part) const { return first(part) + channels_; }

 private:
  const BatchNormKernel& kernel_;
  std::int64_t rows_, channels_, parts_;
  at::Tensor memory_;
};

// By Chan's formulas.
void merge(const PartialSums& sums, std::int64_t part, std::int64_t before, std::int64_t channels,
    double* mean, double* squares) {
  const auto own = static_cast<double>(sums.rows_of(part)), others = static_cast<double>(before);
  const double weight = own / (own + others);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const double delta = sums.first(part)[channel] - mean[channel];
    mean[channel] += delta * weight;
    squares[channel] += sums.second(part)[channel] + delta * delta * others * weight;
  }
}

// gradient = passed * of_gradient + (input - mean) * of_input + constant, float [C] each.
struct InputGradientFactors {
  at::Tensor of_gradient, of_input, constant;
};

InputGradientFactors factors_of(const BatchNormBackward& given, const at::Tensor& gradients,
    const at::Tensor& products, const at::Tensor& rounded_mean, std::int64_t count) {
  const auto inverse = given.affine.inverse_deviation.to(at::kDouble);
  const auto scale = given.weight.to(at::kDouble) * inverse;
  const auto of_input = -scale * inverse.square() * products / static_cast<double>(count);
  const auto constant =
      -scale * gradients / static_cast<double>(count) - of_input * (given.mean - rounded_mean);
  return {scale.to(at::kFloat), of_input.to(at::kFloat), constant.to(at::kFloat)};
}

}  // namespace

BatchNormAffine affine_of(const BatchStatistics& statistics, const at::Tensor& weight,
    const at::Tensor& bias, double eps) {
  const auto variance = statistics.squares / static_cast<double>(statistics.count);
  const auto inverse = (variance + eps).rsqrt();
  const auto scale = weight.to(at::kDouble) * inverse;
  const auto shift = bias.to(at::kDouble) - statistics.mean * scale;
  return {scale.to(at::kFloat), shift.to(at::kFloat), inverse.to(at::kFloat)};
}

PixelRows BatchNormPasses::rows() const {
  const bool is_float = input.scalar_type() == at::kFloat;
  return {is_float ? Element::kFloat : Element::kBFloat16, input.size(1)};
}

BatchStatistics BatchNormPasses::statistics() const {
  const std::int64_t channels = input.size(1);
  PartialSums sums(kernel, row_count(), channels);
  sums.compute([&](RowRange range, double* mean, double* squares, float* scratch) {
    kernel.collect(rows(), input.const_data_ptr(), range, {mean, squares}, scratch);
  });
  auto mean = doubles({channels}).zero_(), squares = doubles({channels}).zero_();
  std::int64_t before = 0;
  for (std::int64_t part = 0; part < sums.parts(); before += sums.rows_of(part++))
    merge(sums, part, before, channels, mean.mutable_data_ptr<double>(),
        squares.mutable_data_ptr<double>());
  return {mean, squares, row_count()};
}

void BatchNormPasses::update(const at::Tensor& running_mean, const at::Tensor& running_var,
    const BatchStatistics& statistics, double momentum) const {
  const at::AutoDispatchBelowADInplaceOrView without_new_versions;
  const auto variance = statistics.squares / static_cast<double>(statistics.count - 1);
  running_mean.mul_(1 - momentum).add_(statistics.mean.to(at::kFloat), momentum);
  running_var.mul_(1 - momentum).add_(variance.to(at::kFloat), momentum);
}

at::Tensor BatchNormPasses::normalised(
    const BatchNormAffine& affine, const at::Tensor& addend, bool rectifies) const {
  auto output = at::empty_like(input, input.options(), at::MemoryFormat::ChannelsLast);
  const NormaliseJob job{.rows = rows(),
      .inputs = input.const_data_ptr(),
      .addends = addend.defined() ? addend.const_data_ptr() : nullptr,
      .rectifies = rectifies,
      .scale = floats(affine.scale),
      .shift = floats(affine.shift),
      .outputs = output.mutable_data_ptr()};
  over_rows(row_count(), [&](RowRange range) { kernel.normalise(job, range); });
  return output;
}

BatchNormGradients BatchNormPasses::gradients(const BatchNormBackward& given) const {
  const bool has_addend = given.output.defined();
  const Passing by_relu = has_addend ? Passing::kByOutputs : Passing::kByInputs;
  const auto gradient = channels_last(given.gradient);
  auto passed = has_addend ? at::empty_like(input) : at::Tensor();
  const auto mean = given.mean.to(at::kFloat);
  const ReduceJob reduced{.rows = rows(),
      .passing = given.rectifies ? by_relu : Passing::kAll,
      .inputs = input.const_data_ptr(),
      .gradients = gradient.const_data_ptr(),
      .outputs = has_addend ? given.output.const_data_ptr() : nullptr,
      .scale = floats(given.affine.scale),
      .shift = floats(given.affine.shift),
      .mean = floats(mean),
      .passed = has_addend ? passed.mutable_data_ptr() : nullptr};
  PartialSums parts(kernel, row_count(), input.size(1));
  parts.compute([&](RowRange range, double* gradients, double* products, float* scratch) {
    kernel.reduce(reduced, range, {gradients, products}, scratch);
  });
  const auto sums = parts.total();
  sums[1] -= sums[0] * (given.mean - mean);  // what the float is off by
  const auto factors = factors_of(given, sums[0], sums[1], mean, row_count());
  auto result = at::empty_like(input);
  const InputGradientJob job{.rows = rows(),
      .inputs = input.const_data_ptr(),
      .gradients = has_addend ? passed.const_data_ptr() : gradient.const_data_ptr(),
      .have_passed = has_addend || !given.rectifies,
      .scale = floats(given.affine.scale),
      .shift = floats(given.affine.shift),
      .mean = floats(mean),
      .of_gradient = floats(factors.of_gradient),
      .of_input = floats(factors.of_input),
      .constant = floats(factors.constant),
      .input_gradients = result.mutable_data_ptr()};
  over_rows(row_count(), [&](RowRange range) { kernel.differentiate(job, range); });
  const auto weight = sums[1] * given.affine.inverse_deviation.to(at::kDouble);
  return {result, weight.to(at::kFloat), sums[0].to(at::kFloat), passed};
}

}  // namespace lockstep::nn::fused
