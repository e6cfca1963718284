#include "lockstep/train/record/meter.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {

namespace {

// Returns the sum over all samples if those that do not count had the mean of those that do; NaN if
// none counts.
double over_all(double loss_sum, double samples, double counted) {
  return counted == samples ? loss_sum : loss_sum * (samples / counted);
}

}  // namespace

// Doubles, so that thousands of losses add up without rounding away the last ones.
Meter::Meter(ProcessGroup world)
    : world_(std::move(world)),
      loss_sum_(at::zeros({}, on_host(torch::kDouble))),
      loss_sum_before_(at::zeros({}, on_host(torch::kDouble))) {}

void Meter::restart() {
  loss_sum_.zero_();
  loss_sum_before_.zero_();
  steps_ = 0;
  samples_ = samples_before_ = left_out_ = 0;
  data_seconds_ = 0;
  seconds_before_ = 0;
  watch_.restart();
}

MeterReading Meter::part() const {
  return {.steps = steps_,
      .samples = samples_,
      .loss_sum = over_all(loss_sum_.item<double>(), static_cast<double>(samples_),
          static_cast<double>(samples_ - left_out_)),
      .seconds = seconds_before_ + watch_.seconds(),
      .data_seconds = data_seconds_};
}

void Meter::restore(const MeterReading& part) {
  restart();
  if (!std::isfinite(part.loss_sum)) left_out_ = part.samples;
  loss_sum_.fill_(left_out_ > 0 ? 0 : part.loss_sum);
  loss_sum_before_.copy_(loss_sum_);
  steps_ = part.steps;
  samples_ = samples_before_ = part.samples;
  data_seconds_ = part.data_seconds;
  seconds_before_ = part.seconds;
}

void Meter::add(const torch::Tensor& loss, std::int64_t samples) {
  if (loss.device() != loss_sum_.device()) {
    loss_sum_ = loss_sum_.to(loss.device());
    loss_sum_before_ = loss_sum_before_.to(loss.device());
  }
  loss_sum_.add_(loss.detach(), samples);
  samples_ += samples;
}

void Meter::add_step(bool is_taken) {
  ++steps_;
  if (!is_taken && !std::isfinite(loss_sum_.item<double>())) {
    left_out_ += samples_ - samples_before_;
    loss_sum_.copy_(loss_sum_before_);
  }
  loss_sum_before_.copy_(loss_sum_);
  samples_before_ = samples_;
}

MeterReading Meter::read(double comm_seconds) {
  const torch::Tensor sums = at::zeros({3}, on_host(torch::kDouble));
  sums[0].copy_(loss_sum_);
  sums[1].fill_(samples_);
  sums[2].fill_(samples_ - left_out_);
  world_.all_reduce(sums).wait();
  const auto* sum = sums.const_data_ptr<double>();
  const MeterReading reading{.steps = steps_,
      .samples = static_cast<std::int64_t>(sum[1]),
      .loss_sum = over_all(sum[0], sum[1], sum[2]),
      .seconds = seconds_before_ + watch_.seconds(),
      .data_seconds = data_seconds_,
      .comm_seconds = comm_seconds - comm_seconds_read_};
  comm_seconds_read_ = comm_seconds;
  restart();
  return reading;
}

torch::Tensor packed(const MeterReading& part) {
  return torch::tensor({static_cast<double>(part.steps), static_cast<double>(part.samples),
                           part.loss_sum, part.seconds, part.data_seconds},
      torch::kDouble);
}

MeterReading unpacked(const torch::Tensor& numbers) {
  if (numbers.scalar_type() != torch::kDouble || numbers.numel() != 5)
    throw DataError("train: the snapshot's file of a rank has no meter of five numbers");
  std::array<double, 5> values{};
  std::copy_n(numbers.const_data_ptr<double>(), values.size(), values.begin());
  const auto [steps, samples, loss_sum, seconds, data_seconds] = values;
  return {.steps = static_cast<std::int64_t>(steps),
      .samples = static_cast<std::int64_t>(samples),
      .loss_sum = loss_sum,
      .seconds = seconds,
      .data_seconds = data_seconds};
}

}  // namespace lockstep
