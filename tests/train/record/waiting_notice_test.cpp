#include "lockstep/train/record/waiting_notice.h"

#include <gmock/gmock.h>

#include "lockstep/train/record/progress.h"

namespace lockstep {
namespace {

using ::testing::MatchesRegex;

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
