// Our orders against those of PyTorch 2.15, which tests/conformance/schedules.py wrote: H2, and H4
// with the content of PyTorch's zb1p_2rank_2stagep_{compute,comms}.csv.

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/schedule.h"

#include "tests/parallel/schedule/schedule_text.h"

namespace lockstep {
namespace {

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

bool is_receive(const Action& action) {
  return action.kind == ActionKind::kReceiveForward || action.kind == ActionKind::kReceiveBackward;
}

// Sorts the receives to the end, all else stays in its order.
std::string with_receives_last(std::vector<Action> actions) {
  const auto receives = std::stable_partition(
      actions.begin(), actions.end(), [](const Action& action) { return !is_receive(action); });
  std::sort(receives, actions.end(), [](const Action& a, const Action& b) {
    return to_string(a) < to_string(b);
  });
  return text_of(actions);
}

// The same computations and sends in the same order, and the same receives. Their places differ:
// PyTorch makes these lists without idle time and case H5 with it; ours are always those of H5.
TEST(ScheduleGolden, H4TransfersArePyTorchsButForThePlacesOfReceives) {
  const auto lines = read_lines("transfers.csv");
  ASSERT_EQ(lines.size(), 2U);
  const Schedule schedule = with_transfers(with_merged_backward(schedule_of(lines[0])));
  for (const Line& line : lines) {
    EXPECT_EQ(
        with_receives_last(schedule.actions[static_cast<std::size_t>(line.rank)]),
        with_receives_last(parse_all(line.actions)));
  }
}

}  // namespace
}  // namespace lockstep
