#include "lockstep/train/profile/step_profiler.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

TEST(StepProfiler, RefusesPlacesWhoseOperatorsReturnBeforeTheyAreDone) {
  EXPECT_NO_THROW(StepProfiler::check_places({Place(), Place()}));
  Place gpu;
  gpu.device = torch::Device(torch::kCUDA, 0);
  EXPECT_THROW(StepProfiler::check_places({Place(), gpu}), InvalidArgument);
}

// A group of one: rank 0 of a run without a launcher.
TEST(StepProfiler, MeasuresTenStepsAfterThree) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  for (int step = 0; step < 20; ++step) {
    profiler.begin_step();
    EXPECT_EQ(SpanRecorder::is_on(), step >= 3 && step < 13) << step;
    profiler.end_step();
    EXPECT_FALSE(SpanRecorder::is_on());
  }
  const auto files = profiler.finish();
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->profile.ranks.at(0).steps, 10);
  EXPECT_GT(files->profile.peak().value_or(0), 1e8);
}

TEST(StepProfiler, HasNothingOfARunThatOnlyWarmedUp) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  for (int step = 0; step < 3; ++step) {
    profiler.begin_step();
    profiler.end_step();
  }
  EXPECT_FALSE(profiler.finish().has_value());
}

// A step of many parts that a signal ends.
TEST(StepProfiler, LeavesOutAStepThatWasAbandoned) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  for (int step = 0; step < 5; ++step) {
    profiler.begin_step();
    if (step < 4) profiler.end_step();
  }
  const auto files = profiler.finish();
  EXPECT_FALSE(SpanRecorder::is_on());
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->profile.ranks.at(0).steps, 1);
}

}  // namespace
}  // namespace lockstep
