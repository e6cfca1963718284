#include "lockstep/data/distributed_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(DistributedSampler, DealsAPermutation) {
  EXPECT_EQ(shares(10, 3, {}), (Shares{{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}}));
  EXPECT_EQ(shares(10, 3, {.drop_last = true}), (Shares{{4, 5, 0}, {1, 3, 8}, {7, 9, 6}}));
}

TEST(DistributedSampler, PermutesAnewEachEpochAndSeed) {
  EXPECT_EQ(shares(10, 3, {}, 1), (Shares{{5, 2, 9, 4}, {6, 0, 3, 5}, {1, 8, 7, 6}}));
  EXPECT_EQ(shares(10, 3, {.seed = 42}), (Shares{{2, 8, 0, 7}, {6, 4, 9, 2}, {1, 5, 3, 6}}));
}

TEST(DistributedSampler, GivesPythonsPermutations) {
  EXPECT_EQ(shares(10, 1, {.seed = 0})[0], (Indices{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}));
  EXPECT_EQ(shares(10, 1, {.seed = 1})[0], (Indices{5, 6, 1, 2, 0, 8, 9, 3, 7, 4}));
  EXPECT_EQ(shares(10, 1, {.seed = 42})[0], (Indices{2, 6, 1, 8, 4, 5, 0, 9, 3, 7}));
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

TEST(DistributedSampler, CountsAsPythonDoes) {
  const std::pair<std::int64_t, std::int64_t> dropped_and_padded[] = {{51, 52}, {34, 35}, {26, 27}};
  for (int world_size = 2; world_size <= 4; ++world_size) {
    const auto [dropped, padded] = dropped_and_padded[world_size - 2];
    for (int rank = 0; rank < world_size; ++rank) {
      const DistributedSampler drops(101 + world_size, rank, world_size, {.drop_last = true});
      const DistributedSampler pads(101 + world_size, rank, world_size, {});
      EXPECT_EQ(drops.share(), dropped);
      EXPECT_EQ(std::ssize(drops.epoch(3)), dropped);
      EXPECT_EQ(pads.share(), padded);
      EXPECT_EQ(std::ssize(pads.epoch(3)), padded);
    }
  }
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

}  // namespace
}  // namespace lockstep
