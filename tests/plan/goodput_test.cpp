#include "lockstep/plan/goodput.h"

#include <cmath>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

constexpr double kHour = 3600;

TEST(Goodput, IsWholeWithoutFailuresAndSnapshots) {
  EXPECT_EQ(goodput_of({}, 1000).share, 1);
  EXPECT_DOUBLE_EQ(goodput_of({.snapshot = 1, .interval = 9}, 1).share, 0.9);
}

TEST(Goodput, TakesTheBestIntervalWhereNoneIsGiven) {
  const Failures failures{.between = 24 * kHour, .snapshot = 10, .recovery = 60};
  const Goodput best = goodput_of(failures, 1);
  // Young's first order: the root of twice the snapshot's time and the mean time between failures.
  EXPECT_NEAR(best.interval / std::sqrt(2 * 10 * 24 * kHour), 1, 0.02);
  for (const double factor : {0.5, 0.9, 1.1, 2.0}) {
    Failures other = failures;
    other.interval = best.interval * factor;
    EXPECT_LT(goodput_of(other, 1).share, best.share) << factor;
  }
}

TEST(Goodput, FallsWithNodesAndWithRecovery) {
  const Failures failures{.between = 24 * kHour, .snapshot = 10, .recovery = 60};
  double before = 1;
  for (int nodes = 1; nodes <= 1024; nodes *= 2) {
    const double share = goodput_of(failures, nodes).share;
    EXPECT_LT(share, before) << nodes;
    before = share;
  }
  Failures slow = failures;
  slow.recovery = 600;
  EXPECT_LT(goodput_of(slow, 8).share, goodput_of(failures, 8).share);
}

TEST(Goodput, AgreesWithFailuresThatAreDrawn) {
  // Intervals of 100 s with snapshots of 5 s, a failure every 500 s, 20 s to recover.
  const Failures failures{.between = 500, .snapshot = 5, .interval = 100, .recovery = 20};
  std::uint64_t state = 1;
  const auto wait = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return -500 * std::log((static_cast<double>(state >> 11) + 0.5) / 9007199254740992.0);
  };
  double elapsed = 0, next = wait();
  constexpr int kIntervals = 20000;
  for (int done = 0; done < kIntervals;) {
    if (next >= elapsed + 105) {
      elapsed += 105;
      ++done;
      continue;
    }
    elapsed = next;
    next = elapsed + wait();
    // A failure during recovery begins it again.
    while (next < elapsed + 20) {
      elapsed = next;
      next = elapsed + wait();
    }
    elapsed += 20;
  }
  EXPECT_NEAR(kIntervals * 100 / elapsed, goodput_of(failures, 1).share, 0.01);
}

TEST(Goodput, OfTheBestIntervalNeedsToKnowWhatASnapshotTakes) {
  EXPECT_THROW(goodput_of({.between = kHour}, 1), InvalidArgument);
  EXPECT_NO_THROW(goodput_of({.between = kHour, .interval = 60}, 1));
}

TEST(Goodput, RefusesNegativeSeconds) {
  EXPECT_THROW(goodput_of({.between = -1}, 1), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::plan
