// Schedules: the text of actions, H3 (PyTorch's test_schedule.py, ActionTest); the orders of single
// schedules and what is refused; every schedule over many numbers of ranks, stages and
// micro-batches, valid (H1, H2) and as long idle as its closed form says; our orders against those
// of PyTorch 2.15, which tests/conformance/schedules.py wrote, H2 and H4 (PyTorch's
// zb1p_2rank_2stagep_{compute,comms}.csv); transfers, H5 (test_send_recv). Pictures in units of
// time are in timetable_test.cpp.

#include "lockstep/parallel/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/execution_order.h"
#include "lockstep/parallel/schedule/timetable.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using enum ActionKind;
using enum ScheduleKind;

// Writes actions as the conformance cases do: `0F0 0SEND_F0 0F1`.
std::string text_of(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (!text.empty()) text += ' ';
    text += to_string(action);
  }
  return text;
}

TEST(Action, H3TextsMeanStageKindAndMicroBatch) {
  const std::pair<const char*, Action> cases[] = {{"1F0", {1, kForward, 0}},
      {"2I1", {2, kBackwardInput, 1}}, {"0W3", {0, kBackwardWeight, 3}}, {"0B3", {0, kBackward, 3}},
      {"2SEND_B2", {2, kSendBackward, 2}}, {"1RECV_F1", {1, kReceiveForward, 1}},
      {"12SEND_F134", {12, kSendForward, 134}}, {"4RECV_B5", {4, kReceiveBackward, 5}}};
  for (const auto& [text, action] : cases) {
    EXPECT_EQ(parse_action(text), action);
    EXPECT_EQ(to_string(action), text);
  }
}

TEST(Action, OtherTextsAreRefusedAndRepeated) {
  for (const char* text : {"", "F", "1F", "F0", "1X0", "-1F0", "1F-1", "1F0 ", "1 F0", "1SEND0",
           "17", "99999999999F0"}) {
    EXPECT_THAT(testing::message_of<InvalidArgument>([&] { parse_action(text); }),
        HasSubstr(concat("'", text, "'")));
  }
}

TEST(Schedule, H6NamesAreThoseOfTheCommandLineAndOthersAreRepeated) {
  for (const char* name : {"sequential", "gpipe", "1f1b", "interleaved", "zero-bubble"}) {
    EXPECT_STREQ(name_of(schedule_kind(name)), name);
  }
  EXPECT_THAT(testing::message_of<InvalidArgument>([] { schedule_kind("2f2b"); }),
      AllOf(HasSubstr("'2f2b'"), HasSubstr("sequential, gpipe, 1f1b, interleaved, zero-bubble")));
}

TEST(Schedule, OrdersAreThoseOfTheirKinds) {
  struct Case {
    ScheduleKind kind;
    int ranks, stages, micro_batches;
    std::size_t rank;
    const char* order;
  };
  const Case cases[] = {{kSequential, 2, 2, 2, 0, "0F0 0B0 0F1 0B1"},
      {kSequential, 2, 2, 2, 1, "1F0 1B0 1F1 1B1"}, {kGPipe, 2, 2, 3, 0, "0F0 0F1 0F2 0B0 0B1 0B2"},
      {kGPipe, 2, 2, 3, 1, "1F0 1F1 1F2 1B0 1B1 1B2"},
      // Stage j runs min(m, s-j) forwards, then alternates: also for fewer micro-batches than
      // stages.
      {k1F1B, 4, 4, 2, 0, "0F0 0F1 0B0 0B1"}, {k1F1B, 4, 4, 2, 2, "2F0 2F1 2B0 2B1"},
      {k1F1B, 4, 4, 2, 3, "3F0 3B0 3F1 3B1"},
      // All stages of a rank before the next round.
      {kInterleaved, 2, 4, 4, 1, "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"},
      // The weights are delayed by the rank.
      {kZeroBubble, 2, 2, 3, 0, "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2"},
      {kZeroBubble, 2, 2, 3, 1, "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"},
      // One stage runs alone.
      {kSequential, 1, 1, 2, 0, "0F0 0B0 0F1 0B1"}, {k1F1B, 1, 1, 2, 0, "0F0 0B0 0F1 0B1"},
      {kInterleaved, 1, 1, 2, 0, "0F0 0B0 0F1 0B1"}};
  for (const Case& each : cases) {
    const auto schedule = make_schedule(each.kind, each.ranks, each.stages, each.micro_batches);
    EXPECT_EQ(text_of(schedule.actions[each.rank]), each.order)
        << name_of(each.kind) << ", rank " << each.rank << " of " << each.ranks;
  }
}

TEST(Schedule, P8NumbersThatDoNotFitAreRefusedWithAdvice) {
  const auto refusal = [](ScheduleKind kind, int ranks, int stages, int micro_batches) {
    return testing::message_of<InvalidArgument>(
        [&] { make_schedule(kind, ranks, stages, micro_batches); });
  };
  EXPECT_THAT(refusal(k1F1B, 2, 3, 4),
      AllOf(HasSubstr("1f1b: fewer places than stages: 2 < 3"), HasSubstr("take 3 places")));
  EXPECT_THAT(refusal(kInterleaved, 2, 3, 4),
      AllOf(HasSubstr("multiple of the places: 3 stages, 2 places"), HasSubstr("2 or 4 stages")));
  EXPECT_THAT(refusal(kInterleaved, 4, 2, 4), HasSubstr("4 places but only 2 stages"));
  EXPECT_THAT(refusal(kGPipe, 2, 2, 0), HasSubstr("1 micro-batch: 0"));
  EXPECT_THAT(refusal(kGPipe, 2, 2, -3), HasSubstr("1 micro-batch: -3"));
  EXPECT_THAT(refusal(kGPipe, 0, 2, 1), HasSubstr("one place"));
  EXPECT_THAT(refusal(kGPipe, 1, 0, 1), HasSubstr("one stage"));
}

constexpr std::array kAll{kSequential, kGPipe, k1F1B, kInterleaved, kZeroBubble};

template <typename Body>
void for_each_shape(Body body) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int per_rank = 1; per_rank <= 4; ++per_rank) {
      for (int micro_batches = 1; micro_batches <= 15; ++micro_batches) {
        for (const ScheduleKind kind : kAll) {
          if (per_rank > 1 && kind != kInterleaved && kind != kZeroBubble) continue;
          SCOPED_TRACE(concat(name_of(kind), ", ", ranks, " ranks, ", per_rank,
              " stages each, m = ", micro_batches));
          body(kind, ranks, per_rank * ranks, micro_batches);
        }
      }
    }
  }
}

TEST(ScheduleGrid, H1EveryScheduleIsValidWithAndWithoutTransfers) {
  for_each_shape([](ScheduleKind kind, int ranks, int stages, int micro_batches) {
    const Schedule schedule = make_schedule(kind, ranks, stages, micro_batches);
    EXPECT_NO_THROW(check_schedule(schedule));
    EXPECT_NO_THROW(check_schedule(with_transfers(schedule)));
    EXPECT_NO_THROW(check_schedule(with_merged_backward(schedule)));
  });
}

struct Grid {
  int stages_per_rank, micro_batches, ranks;
};

TEST(ScheduleGrid, H2InterleavedAndZeroBubbleAreValidOnPyTorchsGrid) {
  constexpr std::array kGrid{Grid{2, 2, 2}, Grid{2, 4, 4}, Grid{2, 8, 2}, Grid{2, 8, 4},
      Grid{2, 8, 8}, Grid{4, 4, 4}, Grid{4, 8, 4}, Grid{4, 8, 8}, Grid{4, 16, 4}, Grid{4, 32, 4},
      Grid{4, 64, 4}, Grid{4, 16, 16}, Grid{4, 32, 32}, Grid{4, 128, 64}, Grid{3, 2, 2},
      Grid{3, 8, 2}, Grid{3, 12, 4}, Grid{4, 6, 3}, Grid{4, 10, 5}, Grid{2, 3, 4}, Grid{2, 10, 4},
      Grid{2, 15, 4}};
  for (const auto& [per_rank, micro_batches, ranks] : kGrid) {
    SCOPED_TRACE(concat("(", per_rank, ", ", micro_batches, ", ", ranks, ")"));
    for (const ScheduleKind kind : {kInterleaved, kZeroBubble}) {
      const Schedule schedule = make_schedule(kind, ranks, ranks * per_rank, micro_batches);
      EXPECT_NO_THROW(check_schedule(with_transfers(schedule)));
    }
  }
}

bool closed_form_is_reached(ScheduleKind kind, int ranks, int micro_batches) {
  return (kind != kInterleaved && kind != kZeroBubble) || micro_batches % ranks == 0;
}

TEST(ScheduleGrid, IdleShareIsTheClosedForm) {
  for_each_shape([](ScheduleKind kind, int ranks, int stages, int micro_batches) {
    const double simulated =
        simulate(make_schedule(kind, ranks, stages, micro_batches), {}).idle_share();
    const double closed = bubble_share(kind, ranks, stages, micro_batches);
    if (closed_form_is_reached(kind, ranks, micro_batches)) {
      EXPECT_NEAR(simulated, closed, 1e-12);
    } else {
      EXPECT_GE(simulated, closed - 1e-12);
    }
  });
}

TEST(ScheduleGrid, EveryFirstScheduleIdlesLessThanTheOneBefore) {
  const auto share = [](ScheduleKind kind, int stages) { return bubble_share(kind, 4, stages, 8); };
  EXPECT_DOUBLE_EQ(share(kSequential, 4), 3.0 / 4);
  EXPECT_DOUBLE_EQ(share(k1F1B, 4), 3.0 / 11);
  EXPECT_DOUBLE_EQ(share(kInterleaved, 8), 3.0 / 19);
  EXPECT_DOUBLE_EQ(share(kZeroBubble, 4), 3.0 / 27);
}

struct Line {
  ScheduleKind kind;
  int ranks = 0, stages = 0, micro_batches = 0, rank = 0;
  std::string actions = {};
};

Line read_line(const std::string& text) {
  std::istringstream stream(text);
  std::string kind;
  std::getline(stream, kind, ',');
  Line line{schedule_kind(kind)};
  char comma = 0;
  stream >> line.ranks >> comma >> line.stages >> comma >> line.micro_batches >> comma >>
      line.rank >> comma;
  std::getline(stream, line.actions);
  return line;
}

std::vector<Line> read_lines(const std::string& file) {
  std::ifstream stream(std::string(LOCKSTEP_SCHEDULES) + "/" + file);
  std::vector<Line> lines;
  for (std::string text; std::getline(stream, text);) {
    if (!text.starts_with('#')) lines.push_back(read_line(text));
  }
  return lines;
}

Schedule schedule_of(const Line& line) {
  return make_schedule(line.kind, line.ranks, line.stages, line.micro_batches);
}

TEST(ScheduleGolden, H2AndH4OrdersArePyTorchs) {
  const auto lines = read_lines("orders.csv");
  ASSERT_EQ(lines.size(), 78U);
  for (const Line& line : lines) {
    const Schedule schedule = schedule_of(line);
    EXPECT_EQ(text_of(schedule.actions[static_cast<std::size_t>(line.rank)]), line.actions)
        << name_of(line.kind) << " " << line.ranks << " " << line.stages << " "
        << line.micro_batches;
  }
}

std::vector<Action> parse_all(const std::string& text) {
  std::istringstream stream(text);
  std::vector<Action> actions;
  for (std::string word; stream >> word;) actions.push_back(parse_action(word));
  return actions;
}

// Sorts the receives to the end, all else stays in its order.
std::string with_receives_last(std::vector<Action> actions) {
  const auto receives = std::stable_partition(actions.begin(), actions.end(),
      [](const Action& action) { return !is_receive(action.kind); });
  std::sort(receives, actions.end(),
      [](const Action& a, const Action& b) { return to_string(a) < to_string(b); });
  return text_of(actions);
}

// The same computations and sends in the same order, and the same receives. Their places differ:
// PyTorch makes these lists without idle time and case H5 with it; ours are always those of H5.
TEST(ScheduleGolden, H4TransfersArePyTorchsButForThePlacesOfReceives) {
  const auto lines = read_lines("transfers.csv");
  ASSERT_EQ(lines.size(), 2U);
  const Schedule schedule = with_transfers(with_merged_backward(schedule_of(lines[0])));
  for (const Line& line : lines) {
    EXPECT_EQ(with_receives_last(schedule.actions[static_cast<std::size_t>(line.rank)]),
        with_receives_last(parse_all(line.actions)));
  }
}

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
  for_each_shape([](ScheduleKind kind, int ranks, int stages, int micro_batches) {
    const auto schedule = with_transfers(make_schedule(kind, ranks, stages, micro_batches));
    EXPECT_TRUE(Meeting(schedule).finishes());
  });
}

TEST(Transfers, BlockingReceivesStandBeforeWhatNeedsThem) {
  const Schedule schedule = with_transfers(make_schedule(k1F1B, 2, 2, 2), Receives::kBlocking);
  EXPECT_EQ(text_of(schedule.actions[0]), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1");
  EXPECT_EQ(text_of(schedule.actions[1]), "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1");
}

TEST(Transfers, BlockingReceivesCostNoTime) {
  for (const auto kind : kAll) {
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

TEST(Validity, H1ComplaintsNameTheActionAndWhatIsWrong) {
  const Schedule gpipe = make_schedule(kGPipe, 2, 2, 2),
                 split = make_schedule(kZeroBubble, 2, 2, 2), sent = with_transfers(gpipe);
  const std::pair<Schedule, const char*> cases[] = {
      {with_swapped(make_schedule(k1F1B, 1, 1, 2), 0, "0F0", "0B0"),
          "rank 0 waits forever in 0B0: 0F0 never comes before it"},
      {with_swapped(make_schedule(k1F1B, 2, 2, 2), 1, "1F0", "1B0"),
          "rank 0 waits forever in 0B0: 1B0 never comes before it"},
      // Two ranks, each in the right order for itself, that wait for each other.
      {with_swapped(make_schedule(kSequential, 2, 2, 2), 1, "1F0", "1F1"), "waits forever in"},
      {with_swapped(split, 0, "0I0", "0W0"), "rank 0 waits forever in 0W0"},
      {with_swapped(sent, 0, "0F0", "0SEND_F0"),
          "rank 0 waits forever in 0SEND_F0: 0F0 never comes before it"},
      {without(gpipe, 0, "0F1"), "0F1 must happen once but happens 0 times"},
      {without(split, 1, "1W1"), "1W1 must happen once but happens 0 times"},
      {without(sent, 1, "1RECV_F1"), "1RECV_F1 must happen once but happens 0 times"},
      {with_replaced(gpipe, 0, "0F1", "0F0"), "0F0 must happen once but happens 2 times"},
      {with_replaced(split, 1, "1I1", "1B1"), "1W1 must happen once but happens 2 times"},
      {with_replaced(gpipe, 0, "0F1", "1F1"), "rank 0, 1F1: the stage is on rank 1"}};
  for (const auto& [schedule, complaint] : cases)
    EXPECT_THAT(complaint_about(schedule), HasSubstr(complaint));
  for (const char* text : {"2F0", "0F2"}) {
    EXPECT_THAT(complaint_about(with_replaced(gpipe, 0, "0F1", text)),
        AllOf(HasSubstr(text), HasSubstr("2 stages and 2 micro-batches")));
  }
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
