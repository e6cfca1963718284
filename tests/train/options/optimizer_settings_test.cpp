#include "lockstep/train/options/optimizer_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(OptimizerSettings, LearningRateFollowsTheGlobalBatchAsAsked) {
  OptimizerSettings settings;
  settings.lr = 0.1;
  EXPECT_DOUBLE_EQ(scaled_lr(settings, 4), 0.1);
  settings.lr_scale = LrScale::kLinear;
  EXPECT_DOUBLE_EQ(scaled_lr(settings, 4), 0.4);
  settings.lr_scale = LrScale::kSqrt;
  EXPECT_DOUBLE_EQ(scaled_lr(settings, 4), 0.2);
}

// VGG19 with AdamW: 1.00, 1.41, 2.00, 2.83 e-4 on 1, 2, 4, 8 devices.
TEST(OptimizerSettings, TheRootRuleHasTheValuesOfTheStudy) {
  OptimizerSettings settings = default_settings(OptimizerKind::kAdamW);
  settings.lr = 1e-4;
  settings.lr_scale = LrScale::kSqrt;
  EXPECT_NEAR(scaled_lr(settings, 1), 1.00e-4, 0.005e-4);
  EXPECT_NEAR(scaled_lr(settings, 2), 1.41e-4, 0.005e-4);
  EXPECT_NEAR(scaled_lr(settings, 4), 2.00e-4, 0.005e-4);
  EXPECT_NEAR(scaled_lr(settings, 8), 2.83e-4, 0.005e-4);
}

}  // namespace
}  // namespace lockstep
