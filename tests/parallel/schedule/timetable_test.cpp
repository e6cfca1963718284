// Unit-time pictures of the schedules (conformance 5.2), their lengths, idle shares and live
// activations.

#include "lockstep/parallel/schedule/timetable.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum ScheduleKind;

constexpr ActionCosts kUnit{.backward = 1};
constexpr ActionCosts kThirds{};  // F = I = W

std::string picture(ScheduleKind kind, int stages, int micro_batches) {
  return concat(
      "\n", to_table(simulate(make_schedule(kind, stages, stages, micro_batches), kUnit)));
}

TEST(Timetable, PicturesOfGPipeAndOneForwardOneBackward) {
  EXPECT_EQ(picture(kGPipe, 2, 4), R"(
stage 0  F0 F1 F2 F3  .  . B0 B1 B2 B3
stage 1   . F0 F1 F2 F3 B0 B1 B2 B3  .
)");
  EXPECT_EQ(picture(k1F1B, 2, 4), R"(
stage 0  F0 F1  . B0 F2 B1 F3 B2  . B3
stage 1   . F0 B0 F1 B1 F2 B2 F3 B3  .
)");
  EXPECT_EQ(picture(k1F1B, 4, 8), R"(
stage 0  F0 F1 F2 F3  .  .  . B0 F4 B1 F5 B2 F6 B3 F7 B4  . B5  . B6  . B7
stage 1   . F0 F1 F2  .  . B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5  . B6  . B7  .
stage 2   .  . F0 F1  . B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6  . B7  .  .
stage 3   .  .  . F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7  .  .  .
)");
}

// "micro-batch stage" per clock, as torchgpipe's test_pipeline asserts it.
std::string forward_cells(int micro_batches, int stages) {
  const Timetable timetable = simulate(make_schedule(kGPipe, stages, stages, micro_batches), kUnit);
  std::string text;
  for (int clock = 0; clock < micro_batches + stages - 1; ++clock) {
    if (clock > 0) text += "/";
    for (const auto& actions : timetable.ranks) {
      for (const auto& [action, start, end] : actions) {
        if (action.kind != ActionKind::kForward || start != clock) continue;
        const bool first = text.empty() || text.back() == '/';
        text += concat(first ? "" : " ", action.micro_batch, action.stage);
      }
    }
  }
  return text;
}

TEST(Timetable, GPipeForwardCellsPerClock) {
  EXPECT_EQ(forward_cells(1, 1), "00");
  EXPECT_EQ(forward_cells(1, 3), "00/01/02");
  EXPECT_EQ(forward_cells(3, 1), "00/10/20");
  EXPECT_EQ(forward_cells(3, 3), "00/10 01/20 11 02/21 12/22");
  EXPECT_EQ(forward_cells(4, 2), "00/10 01/20 11/30 21/31");
}

double length(ScheduleKind kind, int stages, int micro_batches, const ActionCosts& costs) {
  return simulate(make_schedule(kind, stages, stages, micro_batches), costs).length;
}

TEST(Timetable, LengthsOfGPipeAndOneForwardOneBackward) {
  for (const ScheduleKind kind : {kGPipe, k1F1B}) {
    EXPECT_EQ(length(kind, 2, 4, kUnit), 10);
    EXPECT_EQ(length(kind, 3, 3, kUnit), 10);
    EXPECT_EQ(length(kind, 4, 4, kUnit), 14);
    EXPECT_EQ(length(kind, 4, 8, kUnit), 22);
    EXPECT_EQ(length(kind, 4, 8, {.backward = 2}), 33);
    EXPECT_EQ(length(kind, 4, 2, kUnit), 10);
  }
}

TEST(Timetable, IdleShareOfFourStagesAndEightMicroBatches) {
  EXPECT_DOUBLE_EQ(simulate(make_schedule(k1F1B, 4, 4, 8), kUnit).idle_share(), 3.0 / 11);
  EXPECT_DOUBLE_EQ(simulate(make_schedule(kGPipe, 4, 4, 8), kUnit).idle_share(), 3.0 / 11);
}

std::vector<int> live(ScheduleKind kind, int stages, int micro_batches) {
  return simulate(make_schedule(kind, stages, stages, micro_batches), kUnit).most_live_activations;
}

TEST(Timetable, LiveActivationsByTheirRules) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
      for (int stage = 0; stage < stages; ++stage) {
        const auto at = static_cast<std::size_t>(stage);
        EXPECT_EQ(live(kSequential, stages, micro_batches)[at], 1);
        EXPECT_EQ(live(kGPipe, stages, micro_batches)[at], micro_batches);
        EXPECT_EQ(live(k1F1B, stages, micro_batches)[at], std::min(micro_batches, stages - stage));
        EXPECT_EQ(live(kZeroBubble, stages, micro_batches)[at], std::min(micro_batches, stages));
      }
    }
  }
}

// What is computed again lives from its backward on: between the halves of a split one too. The
// last micro-batch is kept from its forward on if it is exempt.
TEST(Timetable, LiveActivationsOfCheckpoints) {
  const auto kept = [](ScheduleKind kind, Checkpoint checkpoint) {
    return most_live_activations(make_schedule(kind, 4, 4, 8), checkpoint);
  };
  for (const auto kind : {kSequential, kGPipe, k1F1B})
    EXPECT_THAT(kept(kind, Checkpoint::kAlways), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(kept(kZeroBubble, Checkpoint::kAlways), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(kept(k1F1B, Checkpoint::kExceptLast), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(kept(kZeroBubble, Checkpoint::kExceptLast), ElementsAre(2, 3, 4, 4));
  for (const auto kind : {kSequential, kGPipe, k1F1B, kZeroBubble})
    EXPECT_EQ(kept(kind, Checkpoint::kNever), live(kind, 4, 8));
}

// ZB-H1 needs no more than the rank of 1F1B that needs most, and only waits at the front.
TEST(Timetable, ZeroBubbleOfTwoStagesFillsTheTail) {
  const Timetable timetable = simulate(make_schedule(kZeroBubble, 2, 2, 3), kThirds);
  EXPECT_EQ("\n" + to_table(timetable), R"(
stage 0  F0 F1  . I0 W0 F2 I1 W1 I2 W2
stage 1   . F0 I0 F1 I1 W0 F2 I2 W1 W2
)");
  EXPECT_DOUBLE_EQ(timetable.idle_share(), 1.0 / 10);
}

TEST(Timetable, LongActionsContinueAndPartsOfUnitsAreRefused) {
  const Schedule schedule = make_schedule(k1F1B, 2, 2, 1);
  EXPECT_EQ("\n" + to_table(simulate(schedule, {.backward = 2})), R"(
stage 0  F0  .  .  . B0  =
stage 1   . F0 B0  =  .  .
)");
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([&] { to_table(simulate(schedule, {.forward = 0.5})); }),
      HasSubstr("0.5"));
}

TEST(Timetable, TransfersOutsideTheScheduleDelayOnlyTheOtherRank) {
  const Timetable timetable =
      simulate(make_schedule(kGPipe, 2, 2, 1), {.backward = 1, .transfer = 3});
  EXPECT_EQ("\n" + to_table(timetable), R"(
stage 0  F0  .  .  .  .  .  .  .  . B0
stage 1   .  .  .  . F0 B0  .  .  .  .
)");
}

TEST(Timetable, CostsBelowZeroAreRefused) {
  const Schedule schedule = make_schedule(kGPipe, 2, 2, 1);
  EXPECT_THROW(simulate(schedule, {.forward = -1}), InvalidArgument);
  EXPECT_THROW(
      simulate(schedule, {.transfer = std::numeric_limits<double>::infinity()}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
