#include "lockstep/train/record/meter.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {

namespace {

enum Sum : std::uint8_t { kLoss, kLeftOut };

// Returns the sum over all samples if those that do not count had the mean of those that do; NaN if
// none counts.
double over_all(double loss_sum, double samples, double counted) {
  return counted == samples ? loss_sum : loss_sum * (samples / counted);
}

}  // namespace

// Doubles, so that thousands of losses add up without rounding away the last ones.
Meter::Meter(ProcessGroup world)
    : world_(std::move(world)),
      sums_(at::zeros({2}, on_host(torch::kDouble))),
      sums_before_(at::zeros({2}, on_host(torch::kDouble))) {}

void Meter::restart() {
  sums_.zero_();
  sums_before_.zero_();
  steps_ = 0;
  samples_ = samples_before_ = 0;
  data_seconds_ = 0;
  seconds_before_ = 0;
  watch_.restart();
}

MeterReading Meter::part() const {
  const torch::Tensor sums = sums_.cpu();
  const auto* sum = sums.const_data_ptr<double>();
  const auto samples = static_cast<double>(samples_);
  return {.steps = steps_,
      .samples = samples_,
      .loss_sum = over_all(sum[kLoss], samples, samples - sum[kLeftOut]),
      .seconds = seconds_before_ + watch_.seconds(),
      .data_seconds = data_seconds_};
}

torch::Tensor Meter::packed_part() const {
  const torch::Tensor numbers = at::empty({5}, sums_.options()), loss = sums_[kLoss];
  const torch::Tensor counted = static_cast<double>(samples_) - sums_[kLeftOut];
  numbers[0].fill_(steps_);
  numbers[1].fill_(samples_);
  numbers[2].copy_(at::where(counted == samples_, loss, loss * samples_ / counted));
  numbers[3].fill_(seconds_before_ + watch_.seconds());
  numbers[4].fill_(data_seconds_);
  return numbers;
}

void Meter::restore(const MeterReading& part) {
  restart();
  const bool has_loss = std::isfinite(part.loss_sum);
  sums_[kLoss].fill_(has_loss ? part.loss_sum : 0);
  sums_[kLeftOut].fill_(has_loss ? 0 : part.samples);
  sums_before_.copy_(sums_);
  steps_ = part.steps;
  samples_ = samples_before_ = part.samples;
  data_seconds_ = part.data_seconds;
  seconds_before_ = part.seconds;
}

Meter::Sums Meter::sums() const {
  return {.of_device = sums_.clone(), .samples = samples_, .data_seconds = data_seconds_};
}

void Meter::take_back(const Sums& sums) {
  follow(sums.of_device.device());
  sums_.copy_(sums.of_device);
  samples_ = sums.samples;
  data_seconds_ = sums.data_seconds;
}

void Meter::follow(const torch::Device& device) {
  if (device == sums_.device()) return;
  sums_ = sums_.to(device);
  sums_before_ = sums_before_.to(device);
}

void Meter::add(const torch::Tensor& loss, std::int64_t samples) {
  add_loss(loss, samples);
  samples_ += samples;
}

void Meter::add_loss(const torch::Tensor& loss, std::int64_t samples) {
  follow(loss.device());
  sums_[kLoss].add_(loss.detach(), samples);
}

void Meter::add_step(const torch::Tensor& skipped) {
  ++steps_;
  if (skipped.defined()) leave_out_overflow(skipped.to(sums_.device()));
  sums_before_.copy_(sums_);
  samples_before_ = samples_;
}

void Meter::leave_out_overflow(const torch::Tensor& skipped) {
  const torch::Tensor is_lost = skipped.gt(0).logical_and_(sums_[kLoss].isfinite().logical_not());
  sums_.copy_(at::where(is_lost, sums_before_, sums_));
  sums_[kLeftOut].add_(is_lost.to(torch::kDouble), samples_ - samples_before_);
}

MeterReading Meter::read(double comm_seconds) {
  const torch::Tensor own = sums_.cpu(), sums = at::zeros({3}, on_host(torch::kDouble));
  const double left_out = own[kLeftOut].item<double>();
  sums[0].copy_(own[kLoss]);
  sums[1].fill_(samples_);
  sums[2].fill_(static_cast<double>(samples_) - left_out);
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

MeterReading share_of(const MeterReading& all, int rank, int ranks) {
  MeterReading share = all;
  share.samples = all.samples / ranks + (rank < all.samples % ranks ? 1 : 0);
  if (share.samples != all.samples)  // else to the bit
    share.loss_sum = share.samples == 0 ? 0 : all.loss() * static_cast<double>(share.samples);
  return share;
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
