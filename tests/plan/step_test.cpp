#include "lockstep/plan/step.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

TEST(StepClock, LanesWorkAtOnceAndTasksWaitForWhatTheyNeed) {
  StepClock clock;
  const auto place = clock.add_lane("place"), link = clock.add_lane("link");
  const std::array first{clock.add(place, Use::kBackward, "a", 2)};
  const std::array sent{clock.add(link, Use::kCommunication, "a", 5, first)};
  clock.add(place, Use::kBackward, "b", 3);
  const auto last = clock.add(place, Use::kOptimizer, "step", 1, sent);
  EXPECT_DOUBLE_EQ(clock.tasks()[sent[0]].end, 7);
  EXPECT_DOUBLE_EQ(clock.tasks()[last].end, 8);
  EXPECT_DOUBLE_EQ(clock.length(), 8);
  EXPECT_DOUBLE_EQ(clock.uses_of(place)[static_cast<std::size_t>(Use::kBackward)], 5);
}

TEST(StepClock, RefusesWhatIsNotThere) {
  StepClock clock;
  EXPECT_THROW(clock.add(0, Use::kRest, "nowhere", 1), InvalidArgument);
  const auto lane = clock.add_lane("place");
  const std::array<StepClock::Task, 1> none{7};
  EXPECT_THROW(clock.add(lane, Use::kRest, "early", 1, none), InvalidArgument);
  EXPECT_THROW(clock.add(lane, Use::kRest, "backwards", -1), InvalidArgument);
  EXPECT_EQ(clock.length(), 0);
}

using enum ScheduleKind;

constexpr std::array kKinds{kSequential, kGPipe, k1F1B, kInterleaved, kZeroBubble};

// Of two ranks, each takes as long as alone; of more, they take turns on two cores.
double of_two_cores(int active) { return std::max(1.0, active / 2.0); }

std::vector<ActionCosts> uneven(int stages) {
  std::vector<ActionCosts> costs;
  for (int stage = 0; stage < stages; ++stage)
    costs.push_back({.forward = 1.0 + stage,
        .backward_input = 1.5,
        .backward_weight = 0.5 + stage,
        .backward = 2.25,
        .transfer = 0.25});
  return costs;
}

TEST(SharedTimetable, IsThatOfTheScheduleWhereNobodySlowsAnother) {
  for (const ScheduleKind kind : kKinds) {
    const int stages = kind == kInterleaved ? 6 : 3;
    const Schedule schedule = make_schedule(kind, 3, stages, 6);
    const Timetable alone = simulate_stages(schedule, uneven(stages));
    const Timetable shared = shared_timetable(schedule, uneven(stages), [](int) { return 1.0; });
    EXPECT_EQ(shared.ranks, alone.ranks) << static_cast<int>(kind);
    EXPECT_EQ(shared.length, alone.length);
    EXPECT_EQ(shared.most_live_activations, alone.most_live_activations);
  }
}

TEST(SharedTimetable, OfStagesThatNeverComputeTogetherIsNoLonger) {
  const Schedule schedule = make_schedule(kSequential, 4, 4, 1);
  EXPECT_EQ(shared_timetable(schedule, uneven(4), of_two_cores).length,
      simulate_stages(schedule, uneven(4)).length);
}

TEST(SharedTimetable, OfTwoStagesSlowsOnlyWhatIsDoneTogether) {
  const Schedule schedule = make_schedule(kGPipe, 2, 2, 2);
  const std::vector<ActionCosts> costs(2, {.forward = 1, .backward = 2});
  const auto slowdown = [](int active) { return active == 2 ? 1.5 : 1.0; };
  // Alone 9: F, F|F, F, B, B|B, B. Of it 1 and 2 are shared, and take half as long again.
  EXPECT_DOUBLE_EQ(simulate_stages(schedule, costs).length, 9);
  EXPECT_DOUBLE_EQ(shared_timetable(schedule, costs, slowdown).length, 9 + 0.5 + 1);
}

TEST(SharedTimetable, OfAnActionThatIsSlowedForAPartOfItsTime) {
  // Stage 1 has three units beside four of stage 0: six, and one alone.
  const Schedule schedule = make_schedule(kGPipe, 2, 2, 2);
  const std::vector<ActionCosts> costs{
      {.forward = 4, .backward = 0}, {.forward = 3, .backward = 0}};
  const auto slowdown = [](int active) { return static_cast<double>(active); };
  EXPECT_DOUBLE_EQ(shared_timetable(schedule, costs, slowdown).length, 4 + 6 + 1 + 3);
}

TEST(SharedTimetable, IsNeitherBelowTheWorkOfItsCoresNorBelowItselfAlone) {
  for (const ScheduleKind kind : kKinds) {
    const int stages = kind == kInterleaved ? 8 : 4;
    const Schedule schedule = make_schedule(kind, 4, stages, 8);
    const auto costs = uneven(stages);
    const Timetable alone = simulate_stages(schedule, costs);
    const double work = 4 * alone.length * (1 - alone.idle_share());
    const double length = shared_timetable(schedule, costs, of_two_cores).length;
    EXPECT_GE(length, alone.length - 1e-9);
    EXPECT_GE(length, work / 2 - 1e-9);
    EXPECT_LE(length, 2 * alone.length + 1e-9);
  }
}

TEST(SharedTimetable, RefusesTransfersAsActions) {
  const Schedule schedule = with_transfers(make_schedule(kGPipe, 2, 2, 2));
  EXPECT_THROW(shared_timetable(schedule, uneven(2), of_two_cores), InvalidArgument);
}

TEST(SharedSeconds, OfTasksThatShareTwoCores) {
  // Four on two cores until the shortest ends, then three, then two at full speed.
  EXPECT_EQ(shared_seconds({1, 2, 4, 4}, of_two_cores), (std::vector<double>{2, 3.5, 5.5, 5.5}));
  EXPECT_EQ(shared_seconds({0, 3}, of_two_cores), (std::vector<double>{0, 3}));
  EXPECT_TRUE(shared_seconds({}, of_two_cores).empty());
}

}  // namespace
}  // namespace lockstep::plan
