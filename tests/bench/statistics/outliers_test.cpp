#include <cmath>
#include <gmock/gmock.h>

#include "bench/statistics/median.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Outliers, AreFarFromTheMiddleInMedianDeviations) {
  // Median 10, deviations 1 0 1 0 7: MAD 1, so z is 0.6745 times the distance.
  EXPECT_THAT(outliers(std::vector{9.0, 10.0, 11.0, 10.0, 17.0}),
      ElementsAre(false, false, false, false, true));
  EXPECT_THAT(outliers(std::vector{9.0, 10.0, 11.0, 10.0, 17.0}, 4.8), Each(false))
      << "0.6745 * 7 = 4.72";
  EXPECT_THAT(outliers(std::vector{9.0, 10.0, 11.0, 10.0, 3.0}, 4.7),
      ElementsAre(false, false, false, false, true))
      << "those below, too";
}

TEST(Outliers, AreFoundWhereMostValuesAreEqual) {
  EXPECT_THAT(outliers(std::vector{1.0, 1.0, 1.0, 1.0, 1.0, 2.0}),
      ElementsAre(false, false, false, false, false, true));
}

TEST(Outliers, FewOrEqualValuesHaveNone) {
  EXPECT_THAT(outliers({}), IsEmpty());
  EXPECT_THAT(outliers(std::vector{1.0, 1000.0}), Each(false));
  EXPECT_THAT(outliers(std::vector{2.0, 2.0, 2.0}), Each(false));
  EXPECT_THAT(outliers(std::vector{1.0, 1.0, 2.0}), Each(false)) << "three tell too little";
}

TEST(Outliers, MayBeAsFarAsDoublesGo) {
  EXPECT_THAT(outliers(std::vector{-1.7e308, -1.7e308, -1.6e308, -1.6e308, 1.7e308}),
      ElementsAre(false, false, false, false, true));
}

TEST(Outliers, RefuseWhatIsNotFinite) {
  EXPECT_THROW(outliers(std::vector{1.0, std::nan(""), 2.0}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::bench
