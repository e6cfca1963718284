#include "lockstep/formats/weights/strided_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using Numbers = std::vector<std::int64_t>;

const std::vector<std::uint8_t> kStorage{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

TEST(StridedCopy, TellsWhatIsContiguous) {
  EXPECT_TRUE(is_contiguous(Numbers{}, Numbers{}));
  EXPECT_TRUE(is_contiguous(Numbers{2, 3}, Numbers{3, 1}));
  EXPECT_TRUE(is_contiguous(Numbers{2, 1, 3}, Numbers{3, 77, 1}));
  EXPECT_TRUE(is_contiguous(Numbers{5, 0}, Numbers{9, 9}));
  EXPECT_FALSE(is_contiguous(Numbers{2, 3}, Numbers{1, 2}));
  EXPECT_FALSE(is_contiguous(Numbers{2, 3}, Numbers{4, 1}));
  EXPECT_FALSE(is_contiguous(Numbers{3}, Numbers{0}));
}

TEST(StridedCopy, GivesTheElementsRowMajor) {
  EXPECT_THAT(
      strided_copy(kStorage, Numbers{3, 2}, Numbers{1, 3}, 1), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(
      strided_copy(kStorage, Numbers{2, 2}, Numbers{2, 1}, 2), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(
      strided_copy(kStorage, Numbers{2, 2}, Numbers{0, 5}, 2),
      ElementsAre(0, 1, 10, 11, 0, 1, 10, 11));
  EXPECT_THAT(
      strided_copy(kStorage, Numbers{2, 2, 2}, Numbers{1, 4, 2}, 1),
      ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_THAT(strided_copy(kStorage, Numbers{}, Numbers{}, 4), ElementsAre(0, 1, 2, 3));
}

TEST(StridedCopy, StridesThatNoElementUsesMayBeHuge) {
  EXPECT_THAT(
      strided_copy(kStorage, Numbers{1, 2, 1}, Numbers{INT64_MAX, 3, INT64_MAX}, 1),
      ElementsAre(0, 3));
}

}  // namespace
}  // namespace lockstep
