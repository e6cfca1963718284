#include "lockstep/train/record/progress.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

namespace lockstep {
namespace {

using ::testing::MatchesRegex;

ProgressState half() {
  return {.epoch = 2,
      .epochs = 3,
      .step = 50,
      .steps = 100,
      .loss = 0.5,
      .samples_per_s = 41203.4,
      .seconds_left = 65.0};
}

TEST(Progress, BarFillsTheColumnsItHas) {
  EXPECT_EQ(bar_text(half(), 76),
      "epoch 2/3 [#####.....]  50%  50/100  loss 0.5000  41203 samples/s  1:05 left");
  EXPECT_EQ(bar_text(half(), 90).size(), 90u);
  EXPECT_EQ(bar_text(half(), 500).size(), 106u) << "a bar longer than 40 tells no more";
}

TEST(Progress, BarIsLeftOutWhereThereIsNoRoom) {
  for (std::size_t columns : {0u, 10u, 40u, 68u}) {
    EXPECT_LE(bar_text(half(), columns).size(), columns);
    EXPECT_EQ(bar_text(half(), columns).find('['), std::string::npos);
  }
}

TEST(Progress, BarStaysWithinItsColumnsInEveryState) {
  for (std::int64_t step = 0; step <= 120; step += 7) {
    ProgressState state = half();
    state.step = step;
    for (std::size_t columns = 0; columns < 200; columns += 3) {
      EXPECT_LE(bar_text(state, columns).size(), columns);
    }
  }
}

TEST(Progress, LineLeavesOutWhatIsNotKnown) {
  EXPECT_EQ(line_text({.epoch = 1, .step = 5, .steps = 10}), "epoch 1  step 5/10");
}

TEST(Progress, CountsTokensWhereTheyAreLearned) {
  ProgressState state = half();
  state.tokens_per_s = 10547200;
  EXPECT_EQ(line_text(state), "epoch 2/3  step 50/100  loss 0.5000  10547200 tokens/s  1:05 left");
}

TEST(Progress, AutoDrawsABarOnlyOnATerminalThatCan) {
  EXPECT_EQ(resolved_style(ProgressStyle::kAuto, true, "xterm"), ProgressStyle::kBar);
  EXPECT_EQ(resolved_style(ProgressStyle::kAuto, true, "dumb"), ProgressStyle::kLine);
  EXPECT_EQ(resolved_style(ProgressStyle::kAuto, true, ""), ProgressStyle::kLine);
  EXPECT_EQ(resolved_style(ProgressStyle::kAuto, false, "xterm"), ProgressStyle::kLine);
  EXPECT_EQ(resolved_style(ProgressStyle::kNone, true, "xterm"), ProgressStyle::kNone);
  EXPECT_EQ(resolved_style(ProgressStyle::kBar, false, ""), ProgressStyle::kBar);
}

// As where a run is stopped: the cursor is left on a line of its own, once.
TEST(Progress, TheBarOfAnEpochThatIsNotFinishedStays) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress(ProgressStyle::kBar);
    progress.begin_epoch(1, 1, 10);
    progress.end();  // nothing is drawn yet
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    progress.step();
    progress.end();
    progress.end();
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
      MatchesRegex("\repoch 1/1 [^\r\n]*1/10[^\r\n]*\x1b\\[K\n"));
}

Eta two_steps_a_second() {
  Eta eta;
  eta.add_steps(100, 50);
  return eta;
}

std::optional<double> left(const TrainLimits& limits, std::int64_t val_interval = -1) {
  // Within the second epoch of ten steps, of which four are left.
  const EpochBegin begin{
      .epoch = 2, .steps_made = 16, .steps_left = 4, .steps_an_epoch = 10, .seconds = 30};
  return two_steps_a_second().seconds_left(4, rest_of_run(limits, begin, val_interval));
}

TEST(Progress, TimeThatIsLeftEndsWithTheFirstLimit) {
  EXPECT_NEAR(*left({.epochs = 2}), 2, 1e-9);
  EXPECT_NEAR(*left({.epochs = 4}), 12, 1e-9);
  EXPECT_NEAR(*left({.epochs = 4, .steps = 18}), 1, 1e-9) << "within this epoch";
  EXPECT_NEAR(*left({.epochs = 4, .steps = 100}), 12, 1e-9);
  EXPECT_NEAR(*left({.steps = 100}), 42, 1e-9) << "not of this epoch alone";
  EXPECT_NEAR(*left({.epochs = 4, .seconds = 35}), 5, 1e-9);
  EXPECT_NEAR(*left({.epochs = 2, .seconds = 300}), 2, 1e-9);
  EXPECT_NEAR(*left({.seconds = 75}), 45, 1e-9);
  EXPECT_FALSE(Eta().seconds_left(4, {.steps = 10, .seconds = 5})) << "no step was taken yet";
}

TEST(Progress, EvaluationsThatAreLeftAreThoseOfEpochsToCome) {
  const EpochBegin begin{.epoch = 1, .steps_left = 10, .steps_an_epoch = 10};
  EXPECT_EQ(rest_of_run({.epochs = 4}, begin, 1).evaluations, 4);
  EXPECT_EQ(rest_of_run({.epochs = 4, .steps = 15}, begin, 1).evaluations, 2);
  EXPECT_EQ(rest_of_run({.epochs = 4}, begin, 0).evaluations, 1);
  EXPECT_EQ(rest_of_run({.epochs = 4}, begin, -1).evaluations, 0);
}

TEST(Eta, EvenStepsGiveTheirTime) {
  Eta eta;
  eta.add_steps(10, 1.0);
  eta.add_steps(100, 10.0);
  eta.add_evaluation(2);
  EXPECT_NEAR(*eta.seconds_left(50, {.evaluations = 3}), 5 + 6, 1e-9);
}

TEST(Eta, FollowsTheRecentSteps) {
  Eta eta;
  eta.add_steps(10, 100);
  eta.add_steps(2000, 2000 * 0.1);
  EXPECT_NEAR(*eta.seconds_left(100, {}), 10, 0.5);
}

TEST(WaitingNotice, L2TellsAgainAndAgainWhatTakesLong) {
  ::testing::internal::CaptureStderr();
  {
    WaitingNotice notice(std::chrono::milliseconds(1));
    notice.begin("reading");
    while (notice.lines() < 2) std::this_thread::yield();
  }
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(), MatchesRegex("(reading: [0-9.]+ s so far\n)+"));
}

TEST(WaitingNotice, SaysNothingOfWhatIsQuick) {
  ::testing::internal::CaptureStderr();
  {
    WaitingNotice notice;
    notice.begin("reading");
    Progress silent(ProgressStyle::kNone), lines(ProgressStyle::kLine);
    for (Progress* progress : {&silent, &lines}) {
      progress->begin_epoch(1, 1, 1);
      progress->step();
      progress->wait_for("evaluating");
      progress->evaluated(0.1);
    }
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace lockstep
