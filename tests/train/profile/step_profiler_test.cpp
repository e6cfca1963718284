#include "lockstep/train/profile/step_profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const torch::Tensor kImages = at::zeros({2, 3});

std::vector<ChainLayer> no_chain(const torch::Tensor& /*images*/) { return {}; }

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

TEST(ProfileOfAnAccelerator, GivesNoLayerTheWaitForLibTorchsThread) {
  SpanLane main{.thread = "main", .number = 1, .is_main = true},
      engine{.thread = "pt_autograd_0", .number = 2};
  main.spans = {{.name = "backward", .activity = Activity::kBackward, .begin = 10, .end = 90},
      {.name = "step 4", .begin = 0, .end = 100}};
  engine.spans = {
      {.name = "AddmmBackward0", .activity = Activity::kGradientNode, .begin = 20, .end = 50}};
  const RankProfile profile = profile_of({main, engine});
  ASSERT_EQ(profile.layers.size(), 1U);
  EXPECT_DOUBLE_EQ(profile.layers[0].backward, 30e-6);
  EXPECT_DOUBLE_EQ(profile.lanes.at(0).of(StepPhase::kBackward), 80e-6);
}

// The steps of the profile are longer than those of the training.
TEST(ProfileOfAnAccelerator, HasTheTimeOfAStepThatIsNotWaitedFor) {
  const RunProfile run{.precision = "float32",
      .ranks = {{.steps = 10, .step = 100, .unwaited_step = 25, .flops = 2e9}}};
  EXPECT_THAT(profile_text(run), HasSubstr("without that a step takes 25.00 ms"));
  EXPECT_THAT(arithmetic_text(run), HasSubstr("80.0 GFLOP/s"));
  const std::string text = profile_json(run), written = "\"unwaited_step_ms\":25.0";
  EXPECT_EQ(read_profile(text, "profile.json").ranks.at(0).unwaited_step, 25);
  ASSERT_THAT(text, HasSubstr(written));
  const std::string without_time =
      std::string(text).replace(text.find(written), written.size(), "\"unwaited_step_ms\":0.0");
  EXPECT_THROW(read_profile(without_time, "profile.json"), DataError);
}

}  // namespace
}  // namespace lockstep
