#include "lockstep/plan/profile/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/profiles.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/plan/prediction.h"

namespace lockstep::plan {
namespace {

using ::lockstep::testing::message_of;
using ::testing::HasSubstr;
using testing::uniform;

ModelProfile heavy_profile() {
  ModelProfile profile = uniform(16);
  profile.flops = 24.54e9;
  profile.state_copies = 1;
  return profile;
}

TEST(Device, ReachesThePublishedRateWithLargeBatches) {
  const ModelProfile moved = on_device(heavy_profile(), device_of("v100"));
  EXPECT_NEAR(128 / moved.step_seconds(128), 380.44, 0.5);
  EXPECT_FALSE(moved.is_measured);
  EXPECT_THAT(moved.source, HasSubstr("DeepLearningExamples"));
  check_profile(moved);
}

TEST(Device, GainsNothingFromBatchesBelowTheStartOfItsKernels) {
  ModelProfile light = heavy_profile();
  light.flops = 1e6;
  const ModelProfile moved = on_device(light, device_of("V100"));
  EXPECT_DOUBLE_EQ(moved.step_seconds(1), moved.step_seconds(8));
  EXPECT_GT(moved.step_seconds(1 << 20), 2 * moved.step_seconds(8));
}

TEST(Device, KeepsTheSharesOfTheLayers) {
  ModelProfile profile = heavy_profile();
  profile.layers[3].forward = CostCurve({{1, 5}});
  const ModelProfile moved = on_device(profile, device_of("A100"));
  EXPECT_NEAR(moved.layers[3].forward(256) / moved.layers[4].forward(256), 5, 1e-9);
}

TEST(Device, OfEachKindCanBePlannedFor) {
  for (const Device& device : known_devices()) {
    for (const char* const precision : {"32", "bf16-mixed"}) {
      ModelProfile profile = heavy_profile();
      profile.precision = precision;
      const ModelProfile moved = on_device(profile, device);
      const Machine machine{.places = 4, .within = moved.within};
      EXPECT_GT(predict(moved, machine, {.replicas = 4}, 128).samples_per_second(),
          predict(moved, machine, {}, 128).samples_per_second())
          << device.name;
    }
  }
}

TEST(Device, ThatIsNotKnownIsRefused) {
  EXPECT_THAT(message_of<InvalidArgument>([] { device_of("V10"); }), HasSubstr("V100"));
  EXPECT_THAT(message_of<InvalidArgument>([] { on_device(uniform(2), device_of("T4")); }),
      HasSubstr("flops"));
}

}  // namespace
}  // namespace lockstep::plan
