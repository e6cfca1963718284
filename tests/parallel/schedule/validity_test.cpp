// What check_schedule refuses (H1): each rule is broken once, and the message names the action.

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/schedule.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using enum ScheduleKind;

std::string complaint_about(const Schedule& schedule) {
  return testing::message_of<InvalidArgument>([&] { check_schedule(schedule); });
}

std::size_t place_of(const std::vector<Action>& actions, const char* text) {
  return static_cast<std::size_t>(
      std::find(actions.begin(), actions.end(), parse_action(text)) - actions.begin());
}

Schedule with_swapped(Schedule schedule, std::size_t rank, const char* one, const char* other) {
  auto& actions = schedule.actions[rank];
  std::swap(actions.at(place_of(actions, one)), actions.at(place_of(actions, other)));
  return schedule;
}

Schedule with_replaced(Schedule schedule, std::size_t rank, const char* old, const char* text) {
  auto& actions = schedule.actions[rank];
  actions.at(place_of(actions, old)) = parse_action(text);
  return schedule;
}

Schedule without(Schedule schedule, std::size_t rank, const char* text) {
  auto& actions = schedule.actions[rank];
  actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(place_of(actions, text)));
  return schedule;
}

TEST(Validity, H1BackwardBeforeItsForward) {
  const auto schedule = with_swapped(make_schedule(k1F1B, 1, 1, 2), 0, "0F0", "0B0");
  EXPECT_THAT(complaint_about(schedule),
      HasSubstr("rank 0 waits forever in 0B0: 0F0 never comes before it"));
}

TEST(Validity, H1AheadOfTheNeighbour) {
  const auto schedule = with_swapped(make_schedule(k1F1B, 2, 2, 2), 1, "1F0", "1B0");
  EXPECT_THAT(complaint_about(schedule),
      HasSubstr("rank 0 waits forever in 0B0: 1B0 never comes before it"));
}

TEST(Validity, H1WeightBeforeInput) {
  const auto schedule = with_swapped(make_schedule(kZeroBubble, 2, 2, 2), 0, "0I0", "0W0");
  EXPECT_THAT(complaint_about(schedule), HasSubstr("rank 0 waits forever in 0W0"));
}

TEST(Validity, H1MicroBatchMissingOrTwice) {
  const Schedule schedule = make_schedule(kGPipe, 2, 2, 2);
  EXPECT_THAT(complaint_about(without(schedule, 0, "0F1")),
      HasSubstr("0F1 must happen once but happens 0 times"));
  EXPECT_THAT(complaint_about(with_replaced(schedule, 0, "0F1", "0F0")),
      HasSubstr("0F0 must happen once but happens 2 times"));
}

TEST(Validity, H1BackwardWithoutItsWeights) {
  EXPECT_THAT(complaint_about(without(make_schedule(kZeroBubble, 2, 2, 2), 1, "1W1")),
      HasSubstr("1W1 must happen once but happens 0 times"));
  EXPECT_THAT(complaint_about(with_replaced(make_schedule(kZeroBubble, 2, 2, 2), 1, "1I1", "1B1")),
      HasSubstr("1W1 must happen once but happens 2 times"));
}

TEST(Validity, H1StageOnAnotherRank) {
  EXPECT_THAT(complaint_about(with_replaced(make_schedule(kGPipe, 2, 2, 2), 0, "0F1", "1F1")),
      HasSubstr("rank 0, 1F1: the stage is on rank 1"));
}

TEST(Validity, NumbersOutsideTheSchedule) {
  const Schedule schedule = make_schedule(kGPipe, 2, 2, 2);
  for (const char* text : {"2F0", "0F2"}) {
    EXPECT_THAT(complaint_about(with_replaced(schedule, 0, "0F1", text)),
        AllOf(HasSubstr(text), HasSubstr("2 stages and 2 micro-batches")));
  }
}

// Two ranks, each in the right order for itself, that wait for each other.
TEST(Validity, H1RanksThatWaitForEachOther) {
  const auto schedule = with_swapped(make_schedule(kSequential, 2, 2, 2), 1, "1F0", "1F1");
  EXPECT_THAT(complaint_about(schedule), HasSubstr("waits forever in"));
}

TEST(Validity, H1ReceiveMissing) {
  const Schedule schedule = with_transfers(make_schedule(kGPipe, 2, 2, 2));
  EXPECT_THAT(complaint_about(without(schedule, 1, "1RECV_F1")),
      HasSubstr("1RECV_F1 must happen once but happens 0 times"));
}

TEST(Validity, H1SendBeforeItsValue) {
  const Schedule schedule = with_transfers(make_schedule(kGPipe, 2, 2, 2));
  EXPECT_THAT(complaint_about(with_swapped(schedule, 0, "0F0", "0SEND_F0")),
      HasSubstr("rank 0 waits forever in 0SEND_F0: 0F0 never comes before it"));
}

TEST(Validity, TransferToNowhere) {
  Schedule schedule = with_transfers(make_schedule(kGPipe, 2, 2, 1));
  schedule.actions[1].push_back(parse_action("1SEND_F0"));
  EXPECT_THAT(complaint_about(schedule), HasSubstr("no stage on another rank"));
}

TEST(Validity, ListsForOtherRanks) {
  Schedule schedule = make_schedule(kGPipe, 2, 2, 1);
  schedule.actions.pop_back();
  EXPECT_THAT(complaint_about(schedule), HasSubstr("1 for 2 ranks"));
}

}  // namespace
}  // namespace lockstep
