#include "lockstep/train/record/run_log.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

MeterReading reading(double seconds, double data_seconds) {
  return {.steps = 10, .samples = 640, .seconds = seconds, .data_seconds = data_seconds};
}

TEST(SlowLoaderWarning, ComesFromAFifthOfTheStepOn) {
  EXPECT_FALSE(slow_loader_warning(reading(1, 0.19), 2));
  ASSERT_TRUE(slow_loader_warning(reading(1, 0.2), 2));
  EXPECT_EQ(*slow_loader_warning(reading(2, 0.86), 3),
      "steps wait for images: 43 % of their time (data_ms 86), with --workers 3; more of them help "
      "if cores are idle, else a cheaper --augment or smaller images");
}

TEST(SlowLoaderWarning, StaysAwayFromWaitsThatNobodyFeels) {
  EXPECT_FALSE(slow_loader_warning(reading(0.02, 0.009), 0));
  EXPECT_TRUE(slow_loader_warning(reading(0.02, 0.011), 0));
  EXPECT_FALSE(slow_loader_warning(reading(0, 0), 0));
}

}  // namespace
}  // namespace lockstep
