#include "lockstep/train/record/meter.h"

#include <algorithm>
#include <array>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"

namespace lockstep {

// Doubles, so that thousands of losses add up without rounding away the last ones.
Meter::Meter(ProcessGroup world)
    : world_(std::move(world)), loss_sum_(at::zeros({}, torch::kDouble)) {}

void Meter::restart() {
  loss_sum_.zero_();
  steps_ = 0;
  samples_ = 0;
  data_seconds_ = 0;
  seconds_before_ = 0;
  watch_.restart();
}

MeterReading Meter::part() const {
  return {.steps = steps_,
      .samples = samples_,
      .loss_sum = loss_sum_.item<double>(),
      .seconds = seconds_before_ + watch_.seconds(),
      .data_seconds = data_seconds_};
}

void Meter::restore(const MeterReading& part) {
  restart();
  loss_sum_.fill_(part.loss_sum);
  steps_ = part.steps;
  samples_ = part.samples;
  data_seconds_ = part.data_seconds;
  seconds_before_ = part.seconds;
}

void Meter::add(const torch::Tensor& loss, std::int64_t samples) {
  loss_sum_.add_(loss.detach(), samples);
  samples_ += samples;
}

MeterReading Meter::read(double comm_seconds) {
  const torch::Tensor sums = at::zeros({2}, torch::kDouble);
  sums[0].copy_(loss_sum_);
  sums[1].fill_(samples_);
  world_.all_reduce(sums).wait();
  const MeterReading reading{.steps = steps_,
      .samples = sums[1].item<std::int64_t>(),
      .loss_sum = sums[0].item<double>(),
      .seconds = seconds_before_ + watch_.seconds(),
      .data_seconds = data_seconds_,
      .comm_seconds = comm_seconds - comm_seconds_read_};
  comm_seconds_read_ = comm_seconds;
  restart();
  return reading;
}

torch::Tensor packed(const MeterReading& part) {
  return at::tensor({static_cast<double>(part.steps), static_cast<double>(part.samples),
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
