// Whether those who meet at one place are one world.

#include "lockstep/comm/roll_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kRollCallWait(50);

/// A store at which ranks of several processes come one after the other.
class RollCall : public ::testing::Test {
 protected:
  void come(int rank, int size, const std::string& process, const std::string& run = "a") const {
    check_one_world(store_,
        {.rank = rank, .size = size, .run = run, .process = process, .place = "node0:1"},
        kRollCallWait);
  }

  std::string refusal(
      int rank, int size, const std::string& process, const std::string& run = "a") const {
    return testing::message_of<InvalidArgument>([&] { come(rank, size, process, run); });
  }

  /// Returns why a rank that has come does not meet the others.
  template <typename Expected>
  std::string end_of_meeting(int size) const {
    return testing::message_of<Expected>(
        [&] { exchange_texts(store_, "hosts", 0, size, "here", kRollCallWait); });
  }

  Store store_ = memory_store();
};

TEST_F(RollCall, TakesEachRankOnce) {
  come(0, 2, "p0");
  come(1, 2, "p1\ntoken");
  come(1, 2, "p1\ntoken");  // a second group of the same processes
  EXPECT_THAT(refusal(1, 2, "p2\ntoken"),
      HasSubstr("two processes are rank 1 of the world at node0:1: p1 and p2; give each"));
  EXPECT_THAT(end_of_meeting<InvalidArgument>(2), HasSubstr("two processes are rank 1"));
}

TEST_F(RollCall, RefusesAnotherSizeForAll) {
  come(0, 4, "p0");
  EXPECT_THAT(refusal(1, 2, "p1"),
      AllOf(HasSubstr("rank 1 (p1) has a world of 2 ranks, rank 0 at node0:1 has one of 4"),
          HasSubstr("WORLD_SIZE")));
  EXPECT_THAT(end_of_meeting<InvalidArgument>(4), HasSubstr("rank 1 (p1) has a world of 2"));
}

TEST_F(RollCall, RefusesAnotherRunWithoutHarmToThisOne) {
  come(0, 2, "p0");
  EXPECT_THAT(refusal(1, 2, "p1", "b"), HasSubstr("has met another run at node0:1"));
  EXPECT_THAT(refusal(0, 2, "p1", "b"), HasSubstr("has met another run at node0:1"));
  EXPECT_THAT(end_of_meeting<TimeoutError>(2), HasSubstr("waited 50 ms for rank 1 of 2"));
}

TEST_F(RollCall, WaitsForRankZero) {
  EXPECT_EQ(testing::message_of<TimeoutError>([&] { come(1, 2, "p1"); }),
      "init_process_group: waited 50 ms for rank 0");
}

TEST(ThisProcess, HasANameOfItsOwn) {
  EXPECT_EQ(this_process(), this_process());
  EXPECT_THAT(this_process(), HasSubstr(concat(", pid ", ::getpid(), "\n")));
}

}  // namespace
}  // namespace lockstep
