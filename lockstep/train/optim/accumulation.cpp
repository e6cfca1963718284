#include "lockstep/train/optim/accumulation.h"

#include <algorithm>

namespace lockstep {
namespace {

std::int64_t samples_before(const EpochBatches& epoch, std::int64_t batch) {
  return std::min(batch * epoch.batch_size, epoch.samples);
}

}  // namespace

std::int64_t steps_of(const EpochBatches& epoch) {
  return epoch.batches / epoch.batches_a_step + (epoch.batches % epoch.batches_a_step != 0 ? 1 : 0);
}

StepPart step_part(const EpochBatches& epoch, std::int64_t number) {
  const std::int64_t first = number - number % epoch.batches_a_step;
  const std::int64_t end = first + std::min(epoch.batches_a_step, epoch.batches - first);
  const std::int64_t own = samples_before(epoch, number + 1) - samples_before(epoch, number);
  const std::int64_t all = samples_before(epoch, end) - samples_before(epoch, first);
  return {
      .share = static_cast<double>(own) / static_cast<double>(all),
      .is_first = number == first,
      .is_last = number + 1 == end};
}

}  // namespace lockstep
