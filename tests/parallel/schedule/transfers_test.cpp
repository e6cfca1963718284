// The transfers of a schedule: case H5 (PyTorch's test_schedule.py, test_send_recv).

#include <cstddef>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parallel/schedule/schedule_text.h"

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/schedule.h"
#include "lockstep/parallel/schedule/timetable.h"

namespace lockstep {
namespace {

using enum ScheduleKind;

TEST(Transfers, H5OfTwoStagesAndTwoMicroBatches) {
  const Schedule schedule = with_transfers(make_schedule(k1F1B, 2, 2, 2));
  EXPECT_EQ(text_of(schedule.actions[0]), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1");
  EXPECT_EQ(text_of(schedule.actions[1]), "1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1");
}

TEST(Transfers, H5TakesElevenStepsIfATransferIsAStep) {
  const Schedule schedule = with_transfers(make_schedule(k1F1B, 2, 2, 2));
  EXPECT_EQ(simulate(schedule, {.backward = 1, .transfer = 1}).length, 11);
}

bool is_pair(const Action& send, const Action& receive) {
  using enum ActionKind;
  if (send.micro_batch != receive.micro_batch) return false;
  if (send.kind == kSendForward) {
    return receive.kind == kReceiveForward && receive.stage == send.stage + 1;
  }
  return send.kind == kSendBackward && receive.kind == kReceiveBackward &&
         receive.stage == send.stage - 1;
}

// Runs the lists strictly in order with transfers that wait for each other at both ends: the
// strictest way to execute them. Says whether all lists come to their end.
class Meeting {
 public:
  explicit Meeting(const Schedule& schedule)
      : schedule_(schedule), next_(schedule.actions.size()) {}

  bool finishes() {
    while (step()) {
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] != schedule_.actions[rank].size()) return false;
    }
    return true;
  }

 private:
  const Action* head(std::size_t rank) const {
    const auto& actions = schedule_.actions[rank];
    return next_[rank] < actions.size() ? &actions[next_[rank]] : nullptr;
  }

  bool step() {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (head(rank) == nullptr) continue;
      if (is_compute(head(rank)->kind)) return ++next_[rank] > 0;
      for (std::size_t other = 0; other < next_.size(); ++other) {
        if (head(other) == nullptr || !is_pair(*head(rank), *head(other))) continue;
        return ++next_[rank] > 0 && ++next_[other] > 0;
      }
    }
    return false;
  }

  const Schedule& schedule_;
  std::vector<std::size_t> next_;
};

TEST(Transfers, H5NeverDeadlockEvenIfASendWaitsForItsReceive) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int per_rank = 1; per_rank <= 3; ++per_rank) {
      for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
        for (const auto kind : {kSequential, kGPipe, k1F1B, kInterleaved, kZeroBubble}) {
          if (per_rank > 1 && kind != kInterleaved && kind != kZeroBubble) continue;
          const auto schedule =
              with_transfers(make_schedule(kind, ranks, ranks * per_rank, micro_batches));
          EXPECT_TRUE(Meeting(schedule).finishes())
              << name_of(kind) << " " << ranks << " " << per_rank << " " << micro_batches;
        }
      }
    }
  }
}

TEST(Transfers, BlockingReceivesStandBeforeWhatNeedsThem) {
  const Schedule schedule = with_transfers(make_schedule(k1F1B, 2, 2, 2), Receives::kBlocking);
  EXPECT_EQ(text_of(schedule.actions[0]), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1");
  EXPECT_EQ(text_of(schedule.actions[1]), "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1");
}

TEST(Transfers, BlockingReceivesCostNoTime) {
  for (const auto kind : {kSequential, kGPipe, k1F1B, kInterleaved, kZeroBubble}) {
    const Schedule schedule = make_schedule(kind, 3, 3, 7);
    EXPECT_EQ(simulate(with_transfers(schedule, Receives::kBlocking), {}).length,
        simulate(schedule, {}).length)
        << name_of(kind);
  }
}

// Why kBlocking exists: PyTorch's places are for receives that do not wait.
TEST(Transfers, PostedReceivesWouldCostTimeIfTheyWaited) {
  const Schedule schedule = make_schedule(k1F1B, 2, 2, 8);
  EXPECT_EQ(simulate(schedule, {}).length, 27);
  EXPECT_EQ(simulate(with_transfers(schedule), {}).length, 40);
}

TEST(Transfers, StagesOfOneRankExchangeNothing) {
  const Schedule schedule = make_schedule(kInterleaved, 1, 3, 2);
  EXPECT_EQ(with_transfers(schedule), schedule);
}

TEST(Transfers, AreInsertedOnce) {
  const Schedule schedule = with_transfers(make_schedule(kGPipe, 2, 2, 2));
  EXPECT_THROW(with_transfers(schedule), InvalidArgument);
}

TEST(Transfers, ASplitBackwardSendsAfterItsInputPart) {
  const Schedule schedule = with_transfers(make_schedule(kZeroBubble, 2, 2, 1));
  EXPECT_EQ(text_of(schedule.actions[1]), "1RECV_F0 1F0 1I0 1SEND_B0 1W0");
}

TEST(MergedBackward, JoinsOnlyNeighbours) {
  const Schedule schedule = with_merged_backward(make_schedule(kZeroBubble, 2, 2, 2));
  EXPECT_EQ(text_of(schedule.actions[0]), "0F0 0F1 0B0 0B1");
  EXPECT_EQ(text_of(schedule.actions[1]), "1F0 1I0 1F1 1I1 1W0 1W1");
}

}  // namespace
}  // namespace lockstep
