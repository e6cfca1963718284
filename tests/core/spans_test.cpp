#include "lockstep/core/spans.h"

#include <gtest/gtest.h>
#include <thread>

namespace lockstep {
namespace {

class Spans : public ::testing::Test {
 protected:
  void SetUp() override { SpanRecorder::take(); }
  void TearDown() override {
    SpanRecorder::stop();
    SpanRecorder::take();
  }
};

TEST_F(Spans, AreNotRecordedUnlessStarted) {
  { const SpanScope span(Activity::kForward, "forward"); }
  EXPECT_TRUE(SpanRecorder::take().empty());
}

TEST_F(Spans, HaveNameActivityAndTimeOfTheirScope) {
  SpanRecorder::start();
  const std::int64_t before = SpanRecorder::now();
  { const SpanScope span(Activity::kBackward, "backward"); }
  const std::int64_t after = SpanRecorder::now();
  const auto lanes = SpanRecorder::take();
  ASSERT_EQ(lanes.size(), 1U);
  EXPECT_TRUE(lanes[0].is_main);
  const Span& span = lanes[0].spans.at(0);
  EXPECT_EQ(span.name, "backward");
  EXPECT_EQ(span.activity, Activity::kBackward);
  EXPECT_LE(before, span.begin);
  EXPECT_LE(span.begin, span.end);
  EXPECT_LE(span.end, after);
}

TEST_F(Spans, AreOfTheirThreadEvenWhenItHasEnded) {
  SpanRecorder::start();
  { const SpanScope span(Activity::kForward, "here"); }
  std::thread([] { const SpanScope span(Activity::kForward, "there"); }).join();
  const auto lanes = SpanRecorder::take();
  ASSERT_EQ(lanes.size(), 2U);
  for (const SpanLane& lane : lanes)
    EXPECT_EQ(lane.spans.at(0).name, lane.is_main ? "here" : "there");
  EXPECT_TRUE(SpanRecorder::take().empty());
}

// What began while all was off has no begin.
TEST_F(Spans, ThatBeganBeforeTheStartAreLeftOut) {
  {
    const SpanScope span(Activity::kForward, "early");
    SpanRecorder::start();
  }
  EXPECT_TRUE(SpanRecorder::take().empty());
}

}  // namespace
}  // namespace lockstep
