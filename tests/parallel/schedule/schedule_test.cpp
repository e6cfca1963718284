// The orders of single schedules and what is refused; unit-time pictures are in timetable_test.cpp.

#include "lockstep/parallel/schedule/schedule.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

#include "tests/parallel/schedule/schedule_text.h"
#include "tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using enum ScheduleKind;

TEST(Schedule, NamesAreThoseOfTheCommandLine) {
  for (const char* name : {"sequential", "gpipe", "1f1b", "interleaved", "zero-bubble"}) {
    EXPECT_STREQ(name_of(schedule_kind(name)), name);
  }
}

TEST(Schedule, H6UnknownNameIsRepeatedWithThoseThatExist) {
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([] { schedule_kind("2f2b"); }),
      AllOf(HasSubstr("'2f2b'"), HasSubstr("sequential, gpipe, 1f1b, interleaved, zero-bubble")));
}

TEST(Schedule, SequentialTakesEachMicroBatchThereAndBack) {
  const Schedule schedule = make_schedule(kSequential, 2, 2, 2);
  EXPECT_EQ(text_of(schedule.actions[0]), "0F0 0B0 0F1 0B1");
  EXPECT_EQ(text_of(schedule.actions[1]), "1F0 1B0 1F1 1B1");
}

TEST(Schedule, GPipeRunsBackwardFromTheFirstMicroBatch) {
  const Schedule schedule = make_schedule(kGPipe, 2, 2, 3);
  EXPECT_EQ(text_of(schedule.actions[0]), "0F0 0F1 0F2 0B0 0B1 0B2");
  EXPECT_EQ(text_of(schedule.actions[1]), "1F0 1F1 1F2 1B0 1B1 1B2");
}

// Stage j runs min(m, s-j) forwards, then alternates: also for fewer micro-batches than stages.
TEST(Schedule, OneForwardOneBackwardIsDefinedForFewMicroBatches) {
  const Schedule schedule = make_schedule(k1F1B, 4, 4, 2);
  EXPECT_EQ(text_of(schedule.actions[0]), "0F0 0F1 0B0 0B1");
  EXPECT_EQ(text_of(schedule.actions[2]), "2F0 2F1 2B0 2B1");
  EXPECT_EQ(text_of(schedule.actions[3]), "3F0 3B0 3F1 3B1");
}

TEST(Schedule, InterleavedPassesAllStagesOfARankBeforeTheNextRound) {
  const Schedule schedule = make_schedule(kInterleaved, 2, 4, 4);
  EXPECT_EQ(
      text_of(schedule.actions[1]),
      "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
}

TEST(Schedule, ZeroBubbleDelaysTheWeightsByTheRank) {
  const Schedule schedule = make_schedule(kZeroBubble, 2, 2, 3);
  EXPECT_EQ(text_of(schedule.actions[0]), "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2");
  EXPECT_EQ(text_of(schedule.actions[1]), "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2");
}

TEST(Schedule, OneStageRunsAlone) {
  for (const ScheduleKind kind : {kSequential, k1F1B, kInterleaved}) {
    EXPECT_EQ(text_of(make_schedule(kind, 1, 1, 2).actions[0]), "0F0 0B0 0F1 0B1");
  }
}

TEST(Schedule, P8FewerPlacesThanStagesIsRefusedWithAdvice) {
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([] { make_schedule(k1F1B, 2, 3, 4); }),
      AllOf(HasSubstr("1f1b: fewer places than stages: 2 < 3"), HasSubstr("take 3 places")));
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([] { make_schedule(kInterleaved, 2, 3, 4); }),
      AllOf(HasSubstr("multiple of the places: 3 stages, 2 places"), HasSubstr("2 or 4 stages")));
}

TEST(Schedule, PlacesWithoutAStageAreRefused) {
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([] { make_schedule(kInterleaved, 4, 2, 4); }),
      HasSubstr("4 places but only 2 stages"));
}

TEST(Schedule, NumbersBelowOneAreRefused) {
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([] { make_schedule(kGPipe, 2, 2, 0); }),
      HasSubstr("(micro-batch): 0"));
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([] { make_schedule(kGPipe, 2, 2, -3); }),
      HasSubstr("(micro-batch): -3"));
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([] { make_schedule(kGPipe, 0, 2, 1); }),
      HasSubstr("one place"));
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([] { make_schedule(kGPipe, 1, 0, 1); }),
      HasSubstr("one stage"));
}

}  // namespace
}  // namespace lockstep
