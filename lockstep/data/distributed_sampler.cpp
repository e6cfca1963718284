#include "lockstep/data/distributed_sampler.h"

#include <algorithm>
#include <numeric>

#include "lockstep/core/error.h"

namespace lockstep {

DistributedSampler::DistributedSampler(
    std::int64_t size, int rank, int world_size, const DistributedSamplerOptions& options)
    : size_(size), rank_(rank), world_size_(world_size), options_(options) {
  check(size >= 0, "DistributedSampler: the size must not be negative: ", size);
  check(0 <= rank && rank < world_size, "DistributedSampler: rank must be in the world: ", rank,
      " of ", world_size);
  check(options.padding || !options.drop_last,
      "DistributedSampler: drop_last cannot be joined with padding = false, which drops nothing");
}

std::int64_t DistributedSampler::share(std::int64_t first_position) const {
  check(first_position >= 0,
      "DistributedSampler: the first position must not be negative: ", first_position);
  const std::int64_t left = std::max<std::int64_t>(size_ - first_position, 0);
  if (options_.drop_last) return left / world_size_;
  const std::int64_t last_comer = options_.padding ? 0 : rank_;
  return (left - last_comer + world_size_ - 1) / world_size_;
}

std::vector<std::int64_t> DistributedSampler::epoch(
    std::int64_t epoch, std::int64_t first_position) const {
  check(epoch >= 0, "DistributedSampler: the epoch must not be negative: ", epoch);
  const auto all = order(epoch);
  std::vector<std::int64_t> mine(static_cast<std::size_t>(share(first_position)));
  std::int64_t position = std::min(first_position, size_) + rank_;
  for (auto& index : mine) {
    // Padding goes round the order again, as often as needed.
    index = all[static_cast<std::size_t>(position % size_)];
    position += world_size_;
  }
  return mine;
}

std::vector<std::int64_t> DistributedSampler::order(std::int64_t epoch) const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_));
  if (!options_.shuffle) {
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  auto generator =
      at::make_generator<at::CPUGeneratorImpl>(options_.seed + static_cast<std::uint64_t>(epoch));
  const auto permutation =
      torch::randperm(size_, generator, torch::TensorOptions().dtype(torch::kLong));
  std::copy_n(permutation.const_data_ptr<std::int64_t>(), all.size(), all.begin());
  return all;
}

}  // namespace lockstep
