#include "lockstep/train/state/epoch_position.h"

#include <algorithm>

namespace lockstep {
namespace {

std::int64_t rounded_up(std::int64_t count, std::int64_t parts) {
  return count / parts + (count % parts != 0 ? 1 : 0);
}

std::int64_t samples_before(const EpochBatches& epoch, std::int64_t batch) {
  return std::min(batch * epoch.batch_size, epoch.samples);
}

}  // namespace

std::int64_t epoch_samples(const EpochRule& rule) {
  const std::int64_t of_all = rule.batch_size * rule.replicas;
  const std::int64_t all = rounded_up(rule.samples, of_all);
  return std::min(rule.samples, rule.limit_batches.value_or(all) * of_all);
}

// The sampler gives every rank equally many samples, the last of them twice if need be.
EpochBatches batches_left(const EpochRule& rule, const EpochPosition& position) {
  const std::int64_t taken =
      position.epoch_samples > 0 ? position.epoch_samples : epoch_samples(rule);
  const std::int64_t left = std::max<std::int64_t>(rule.samples - position.samples, 0);
  const std::int64_t to_take = std::max<std::int64_t>(taken - position.samples, 0);
  return {.samples = rounded_up(left, rule.replicas),
      .batch_size = rule.batch_size,
      .batches = rounded_up(to_take, rule.batch_size * rule.replicas),
      .batches_a_step = rule.batches_a_step};
}

EpochPosition advanced(
    EpochPosition position, const EpochRule& rule, std::int64_t samples_of_each_rank) {
  position.samples =
      std::min(rule.samples, position.samples + samples_of_each_rank * rule.replicas);
  return position;
}

std::int64_t schedule_step(const EpochRule& rule, const EpochPosition& position) {
  const std::int64_t whole = steps_of(batches_left(rule, {}));
  const std::int64_t before = (position.epoch - 1) * whole;
  const std::int64_t taken = position.epoch_samples;
  if (taken == 0 || taken == epoch_samples(rule))
    return before + whole - steps_of(batches_left(rule, position));
  // Steps of an epoch that another rule began are more or fewer than those of the schedule's.
  return before + std::min(position.samples, taken) * whole / taken;
}

std::int64_t steps_of(const EpochBatches& epoch) {
  return rounded_up(epoch.batches, epoch.batches_a_step);
}

StepPart step_part(const EpochBatches& epoch, std::int64_t number) {
  const std::int64_t first = number - number % epoch.batches_a_step;
  const std::int64_t end = first + std::min(epoch.batches_a_step, epoch.batches - first);
  const std::int64_t own = samples_before(epoch, number + 1) - samples_before(epoch, number);
  const std::int64_t all = samples_before(epoch, end) - samples_before(epoch, first);
  return {.share = static_cast<double>(own) / static_cast<double>(all),
      .number = number - first,
      .is_last = number + 1 == end};
}

}  // namespace lockstep
