// Who owns what: ZERO test_sharding, test_add_param_group (PyTorch's
// test_zero_redundancy_optimizer.py).

#include "lockstep/parallel/optim/owners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> loads_of(
    const std::vector<std::vector<std::int64_t>>& elements, int ranks) {
  const auto owners = balanced_owners(elements, ranks);
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks));
  for (std::size_t group = 0; group < elements.size(); ++group) {
    for (std::size_t index = 0; index < elements[group].size(); ++index) {
      loads.at(static_cast<std::size_t>(owners[group][index])) += elements[group][index];
    }
  }
  return loads;
}

// Sizes 9, 7, 5 and 3, each as often as there are ranks: every rank gets one of each.
TEST(Owners, ZeroShardingIsEven) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<std::int64_t> elements;
    for (const std::int64_t size : {9, 7, 5, 3}) {
      elements.insert(elements.end(), static_cast<std::size_t>(ranks), size);
    }
    EXPECT_THAT(loads_of({elements}, ranks), ::testing::Each(24));
  }
}

TEST(Owners, LargestFirstToWhoHasLeast) {
  EXPECT_THAT(balanced_owners({{1, 2, 8, 4, 4}}, 2), ElementsAre(ElementsAre(1, 0, 0, 1, 1)));
}

TEST(Owners, TiesGoToTheFirst) {
  EXPECT_THAT(balanced_owners({{5, 5, 5}}, 3), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(balanced_owners({{0, 0}}, 2), ElementsAre(ElementsAre(0, 0)));
}

TEST(Owners, ZeroAGroupAddedLaterMovesNothing) {
  const auto before = balanced_owners({{9, 7, 5, 3}}, 3);
  const auto after = balanced_owners({{9, 7, 5, 3}, {10, 1, 1}}, 3);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_THAT(loads_of({{9, 7, 5, 3}, {10, 1, 1}}, 3), ElementsAre(10, 17, 9));
}

TEST(Owners, MoreRanksThanParameters) {
  EXPECT_THAT(balanced_owners({{3, 2}}, 4), ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(balanced_owners({}, 4), ElementsAre());
}

TEST(Owners, NoRanksAreRefused) { EXPECT_THROW(balanced_owners({{1}}, 0), InvalidArgument); }

}  // namespace
}  // namespace lockstep
