#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <rapidcheck/gtest.h>
#include <set>

#include "lockstep/data/distributed_sampler.h"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;

struct World {
  std::int64_t size;
  int ranks;
  std::int64_t epoch;
  DistributedSamplerOptions options;

  DistributedSampler of(int rank) const { return {size, rank, ranks, options}; }
};

World any_world() {
  World world{};
  world.size = *rc::gen::inRange<std::int64_t>(0, 200);
  world.ranks = *rc::gen::inRange(1, 12);
  world.epoch = *rc::gen::inRange<std::int64_t>(0, 5);
  world.options.shuffle = *rc::gen::arbitrary<bool>();
  world.options.seed = *rc::gen::inRange<std::uint64_t>(0, 1000);
  return world;
}

/// Returns the samples in the order in which the ranks together consume them, step by step.
Indices consumed(const World& world, std::int64_t first_position = 0) {
  std::vector<Indices> shares;
  std::size_t longest = 0;
  for (int rank = 0; rank < world.ranks; ++rank) {
    shares.push_back(world.of(rank).epoch(world.epoch, first_position));
    longest = std::max(longest, shares.back().size());
  }
  Indices all;
  for (std::size_t step = 0; step < longest; ++step) {
    for (const auto& share : shares) {
      if (step < share.size()) all.push_back(share[step]);
    }
  }
  return all;
}

Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

Indices from_zero_to(std::int64_t size) {
  Indices all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Indices part(const Indices& indices, std::int64_t from) {
  return {indices.begin() + std::min(from, std::ssize(indices)), indices.end()};
}

RC_GTEST_PROP(SamplerProperties, PaddingCoversTheSetWithEqualShares, ()) {
  const auto world = any_world();
  const auto all = consumed(world);
  const std::set<std::int64_t> distinct(all.begin(), all.end());
  RC_ASSERT(std::ssize(distinct) == world.size);
  RC_ASSERT(std::ssize(all) == (world.size + world.ranks - 1) / world.ranks * world.ranks);
  for (int rank = 0; rank < world.ranks; ++rank) {
    RC_ASSERT(std::ssize(world.of(rank).epoch(world.epoch)) * world.ranks == std::ssize(all));
  }
  for (std::int64_t i = world.size; i < std::ssize(all); ++i) {
    RC_ASSERT(all[static_cast<std::size_t>(i)] == all[static_cast<std::size_t>(i % world.size)]);
  }
}

RC_GTEST_PROP(SamplerProperties, DroppingRepeatsNothingWithEqualShares, ()) {
  auto world = any_world();
  world.options.drop_last = true;
  const auto all = consumed(world);
  const std::set<std::int64_t> distinct(all.begin(), all.end());
  RC_ASSERT(distinct.size() == all.size());
  RC_ASSERT(std::ssize(all) == world.size / world.ranks * world.ranks);
  for (int rank = 0; rank < world.ranks; ++rank) {
    RC_ASSERT(std::ssize(world.of(rank).epoch(world.epoch)) == world.size / world.ranks);
  }
}

RC_GTEST_PROP(SamplerProperties, EvaluationSeesEverySampleOnce, ()) {
  auto world = any_world();
  world.options.padding = false;
  RC_ASSERT(sorted(consumed(world)) == from_zero_to(world.size));
  const auto first = std::ssize(world.of(0).epoch(world.epoch));
  const auto last = std::ssize(world.of(world.ranks - 1).epoch(world.epoch));
  RC_ASSERT(first - last <= 1);
}

RC_GTEST_PROP(SamplerProperties, TheSameEpochGivesTheSameOrder, ()) {
  const auto world = any_world();
  RC_ASSERT(consumed(world) == consumed(world));
}

RC_GTEST_PROP(SamplerProperties, StoppingAndGoingOnChangesNothing, ()) {
  auto world = any_world();
  world.options.drop_last = *rc::gen::arbitrary<bool>();
  const auto all = consumed(world);
  const auto steps = *rc::gen::inRange<std::int64_t>(0, std::ssize(all) / world.ranks + 1);
  RC_ASSERT(consumed(world, steps * world.ranks) == part(all, steps * world.ranks));
}

RC_GTEST_PROP(SamplerProperties, AnotherWorldGoesOnInTheSameOrder, ()) {
  auto world = any_world();
  world.options.padding = false;
  const auto all = consumed(world);
  const auto position = *rc::gen::inRange<std::int64_t>(0, world.size + 3);
  world.ranks = *rc::gen::inRange(1, 12);
  RC_ASSERT(consumed(world, position) == part(all, position));
  world.options.padding = true;
  const auto padded = consumed(world, position);
  const auto left = part(all, position);
  RC_ASSERT(std::equal(left.begin(), left.end(), padded.begin()));
  RC_ASSERT(std::ssize(padded) - std::ssize(left) < world.ranks);
}

}  // namespace
}  // namespace lockstep
