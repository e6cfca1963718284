#include "lockstep/train/record/progress.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

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

TEST(Progress, AutoDrawsABarOnlyOnATerminalThatCan) {
  EXPECT_EQ(resolved_style(ProgressStyle::kAuto, true, "xterm"), ProgressStyle::kBar);
  EXPECT_EQ(resolved_style(ProgressStyle::kAuto, true, "dumb"), ProgressStyle::kLine);
  EXPECT_EQ(resolved_style(ProgressStyle::kAuto, true, ""), ProgressStyle::kLine);
  EXPECT_EQ(resolved_style(ProgressStyle::kAuto, false, "xterm"), ProgressStyle::kLine);
  EXPECT_EQ(resolved_style(ProgressStyle::kNone, true, "xterm"), ProgressStyle::kNone);
  EXPECT_EQ(resolved_style(ProgressStyle::kBar, false, ""), ProgressStyle::kBar);
}

TEST(Eta, KnowsNothingBeforeTheFirstStep) { EXPECT_FALSE(Eta().seconds_left(10, 0)); }

TEST(Eta, EvenStepsGiveTheirTime) {
  Eta eta;
  eta.add_steps(10, 1.0);
  eta.add_steps(100, 10.0);
  eta.add_evaluation(2);
  EXPECT_NEAR(*eta.seconds_left(50, 3), 5 + 6, 1e-9);
}

TEST(Eta, FollowsTheRecentSteps) {
  Eta eta;
  eta.add_steps(10, 100);
  eta.add_steps(2000, 2000 * 0.1);
  EXPECT_NEAR(*eta.seconds_left(100, 0), 10, 0.5);
}

}  // namespace
}  // namespace lockstep
