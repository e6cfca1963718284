#include "lockstep/simd/exponential.h"

#include <cmath>
#include <gtest/gtest.h>
#include <initializer_list>
#include <limits>

namespace lockstep::simd {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float power_of(float value) { return exponential(all(value))[0]; }

TEST(Exponential, IsWithinTwoUnitsInTheLastPlace) {
  for (float value = -87; value <= 88; value += 0.0123F) {
    const double exact = std::exp(static_cast<double>(value));
    const auto rounded = static_cast<float>(exact);
    const double unit = static_cast<double>(std::nextafter(rounded, kInfinity)) - rounded;
    ASSERT_NEAR(power_of(value), exact, 2 * unit) << value;
  }
  EXPECT_EQ(power_of(0), 1);
}

TEST(Exponential, HasNoBoundButZeroAndInfinity) {
  for (const float large : {88.5F, 89.0F, 1e3F, 1e32F, 1e38F, kInfinity}) {
    EXPECT_EQ(power_of(-large), 0) << large;
    EXPECT_EQ(power_of(large), kInfinity) << large;
  }
  EXPECT_TRUE(std::isnan(power_of(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace lockstep::simd
