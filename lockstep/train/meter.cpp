#include "lockstep/train/meter.h"

#include <ATen/ops/zeros.h>

namespace lockstep {

MeterReading& MeterReading::operator+=(const MeterReading& later) {
  steps += later.steps;
  samples += later.samples;
  loss_sum += later.loss_sum;
  seconds += later.seconds;
  data_seconds += later.data_seconds;
  comm_seconds += later.comm_seconds;
  return *this;
}

// Doubles, so that thousands of losses add up without rounding away the last ones.
Meter::Meter(ProcessGroup world)
    : world_(std::move(world)), loss_sum_(at::zeros({}, torch::kDouble)) {}

void Meter::restart() {
  loss_sum_.zero_();
  steps_ = 0;
  samples_ = 0;
  data_seconds_ = 0;
  watch_.restart();
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
  const MeterReading reading{
      .steps = steps_,
      .samples = sums[1].item<std::int64_t>(),
      .loss_sum = sums[0].item<double>(),
      .seconds = watch_.seconds(),
      .data_seconds = data_seconds_,
      .comm_seconds = comm_seconds - comm_seconds_read_};
  comm_seconds_read_ = comm_seconds;
  restart();
  return reading;
}

}  // namespace lockstep
