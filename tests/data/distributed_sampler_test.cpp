#include "lockstep/data/distributed_sampler.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <rapidcheck/gtest.h>
#include <set>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;
using Shares = std::vector<Indices>;

Shares shares(std::int64_t size, int world_size, const DistributedSamplerOptions& options,
    std::int64_t epoch = 0) {
  Shares all;
  for (int rank = 0; rank < world_size; ++rank) {
    all.push_back(DistributedSampler(size, rank, world_size, options).epoch(epoch));
  }
  return all;
}

// The numbers are those of Python's torch.utils.data.DistributedSampler.
TEST(DistributedSampler, DealsInOrder) {
  EXPECT_EQ(shares(10, 3, {.shuffle = false}), (Shares{{0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}}));
  EXPECT_EQ(shares(10, 3, {.shuffle = false, .drop_last = true}),
      (Shares{{0, 3, 6}, {1, 4, 7}, {2, 5, 8}}));
}

TEST(DistributedSampler, DealsAPermutationOfEpochAndSeed) {
  EXPECT_EQ(shares(10, 3, {}), (Shares{{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}}));
  EXPECT_EQ(shares(10, 3, {.drop_last = true}), (Shares{{4, 5, 0}, {1, 3, 8}, {7, 9, 6}}));
  EXPECT_EQ(shares(10, 3, {}, 1), (Shares{{5, 2, 9, 4}, {6, 0, 3, 5}, {1, 8, 7, 6}}));
  EXPECT_EQ(shares(10, 3, {.seed = 42}), (Shares{{2, 8, 0, 7}, {6, 4, 9, 2}, {1, 5, 3, 6}}));
}

TEST(DistributedSampler, CountsOnlyTheLowHalfOfTheSeed) {
  EXPECT_EQ(shares(100, 3, {.seed = 42 + (std::uint64_t{7} << 32)}), shares(100, 3, {.seed = 42}));
  EXPECT_EQ(shares(100, 3, {.seed = 40}, 2), shares(100, 3, {.seed = 42}));
  EXPECT_EQ(shares(100, 3, {.seed = ~std::uint64_t{0}}, 1), shares(100, 3, {.seed = 0}));
}

TEST(DistributedSampler, DealsFewerSamplesThanRanks) {
  EXPECT_EQ(shares(2, 3, {.shuffle = false}), (Shares{{0}, {1}, {0}}));
  EXPECT_EQ(shares(2, 3, {.shuffle = false, .drop_last = true}), (Shares{{}, {}, {}}));
  EXPECT_EQ(shares(2, 5, {.shuffle = false}), (Shares{{0}, {1}, {0}, {1}, {0}}));
  EXPECT_EQ(shares(1, 4, {.shuffle = false}), (Shares{{0}, {0}, {0}, {0}}));
  EXPECT_EQ(shares(0, 2, {}), (Shares{{}, {}}));
}

TEST(DistributedSampler, ForEvaluationNeitherRepeatsNorDrops) {
  EXPECT_EQ(shares(10, 3, {.shuffle = false, .padding = false}),
      (Shares{{0, 3, 6, 9}, {1, 4, 7}, {2, 5, 8}}));
  EXPECT_EQ(shares(2, 3, {.shuffle = false, .padding = false}), (Shares{{0}, {1}, {}}));
}

TEST(DistributedSampler, ContinuesWhereItStopped) {
  const DistributedSampler sampler(10, 1, 3, {});
  EXPECT_EQ(sampler.epoch(0, 0), (Indices{1, 3, 8, 4}));
  EXPECT_EQ(sampler.epoch(0, 3), (Indices{3, 8, 4}));
  EXPECT_EQ(sampler.epoch(0, 9), (Indices{4}));
  EXPECT_EQ(sampler.epoch(0, 12), (Indices{}));
  // Position 6 of 4 1 7 5 3 9 0 8 6 2 on two ranks.
  EXPECT_EQ(DistributedSampler(10, 0, 2, {}).epoch(0, 6), (Indices{0, 6}));
  EXPECT_EQ(DistributedSampler(10, 1, 2, {}).epoch(0, 6), (Indices{8, 2}));
}

TEST(DistributedSampler, RefusesWhatCannotBe) {
  EXPECT_THROW(DistributedSampler(10, -1, 3), InvalidArgument);
  EXPECT_THROW(DistributedSampler(10, 3, 3), InvalidArgument);
  EXPECT_THROW(DistributedSampler(10, 0, 0), InvalidArgument);
  EXPECT_THROW(DistributedSampler(-1, 0, 1), InvalidArgument);
  EXPECT_THROW(
      DistributedSampler(10, 0, 1, {.drop_last = true, .padding = false}), InvalidArgument);
  const DistributedSampler sampler(10, 0, 1);
  EXPECT_THROW(sampler.epoch(-1), InvalidArgument);
  EXPECT_THROW(sampler.epoch(0, -1), InvalidArgument);
}

TEST(DistributedSampler, TakesItsPlaceFromTheGroup) {
  const ProcessGroup alone;
  EXPECT_EQ(DistributedSampler(10, alone, {.shuffle = false}).share(), 10);
}

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
    RC_ASSERT(world.of(rank).share() * world.ranks == std::ssize(all));
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
    RC_ASSERT(world.of(rank).share() == world.size / world.ranks);
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
