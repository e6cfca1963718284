#include "lockstep/train/profile/step_profiler.h"

#include <gtest/gtest.h>

#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

const torch::Tensor kImages = at::zeros({2, 3});

std::vector<ChainLayer> no_chain(const torch::Tensor& /*images*/) { return {}; }

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
    profiler.end_step(kImages);
    EXPECT_FALSE(SpanRecorder::is_on());
  }
  const auto files = profiler.finish(no_chain);
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->profile.ranks.at(0).steps, 10);
  EXPECT_TRUE(files->profile.ranks[0].chain.empty());
  EXPECT_GT(files->profile.peak().value_or(0), 1e8);
}

// The last batch of an epoch may be smaller.
TEST(StepProfiler, MeasuresTheChainWithTheLargestBatch) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  for (const int samples : {9, 9, 9, 2, 4, 3}) {
    profiler.begin_step();
    profiler.end_step(at::zeros({samples, 3}));
  }
  int measurements = 0;
  const auto files = profiler.finish([&](const torch::Tensor& images) {
    ++measurements;
    EXPECT_EQ(images.size(0), 4);
    return std::vector<ChainLayer>{{.name = "only", .forward = 1}};
  });
  EXPECT_EQ(measurements, 1);
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->profile.ranks.at(0).batch, 4);
  EXPECT_EQ(files->profile.ranks[0].chain.at(0).name, "only");
}

TEST(StepProfiler, HasNothingOfARunThatOnlyWarmedUp) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  for (int step = 0; step < 3; ++step) {
    profiler.begin_step();
    profiler.end_step(kImages);
  }
  EXPECT_FALSE(profiler.finish(no_chain).has_value());
}

// A step of many parts that a signal ends.
TEST(StepProfiler, LeavesOutAStepThatWasAbandoned) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  for (int step = 0; step < 5; ++step) {
    profiler.begin_step();
    if (step < 4) profiler.end_step(kImages);
  }
  const auto files = profiler.finish(no_chain);
  EXPECT_FALSE(SpanRecorder::is_on());
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->profile.ranks.at(0).steps, 1);
}

}  // namespace
}  // namespace lockstep
