#include "lockstep/parallel/schedule/schedule.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

struct Shape {
  int ranks;
  int stages_per_rank;
  int micro_batches;
};

// Note [Schedules]
// All schedules have one form: a rank runs some forwards ahead (the warm-up), then a forward and a
// backward in turn until the forwards are used up, then the backwards that remain. The kinds differ
// in the length of the warm-up, in the order of the micro-batches over the stages of a rank, and in
// whether the weights' gradients are a part of the backward or follow it by some micro-batches.
//
//     clock       0  1  2  3  4  5  6  7  8  9 10 11 12 13 14     F2: forward of micro-batch 2
//     gpipe   0  F0 F1 F2 F3  .  .  . B0  = B1  = B2  = B3  =     warm-up: all
//             1   . F0 F1 F2 F3 B0  = B1  = B2  = B3  =  .  .
//     1f1b    0  F0 F1  .  . B0  = F2 B1  = F3 B2  =  . B3  =     warm-up: the stages after it
//             1   . F0 B0  = F1 B1  = F2 B2  = F3 B3  =  .  .
//     zero-   0  F0 F1  . I0 W0 F2 I1 W1 F3 I2 W2 I3 W3           I, W: halves of the backward
//     bubble  1   . F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3
struct Form {
  int warm_up;
  std::optional<int> weight_delay;  // in backwards; nothing: one whole backward
};

// Interleaved schedules take the micro-batches in rounds of about as many as there are ranks: each
// round passes all stages of a rank before the next one starts. The first rounds take what is over.
std::vector<std::pair<int, int>> rounds_of(const Shape& shape) {
  const int rounds = std::max(1, shape.micro_batches / shape.ranks);
  std::vector<std::pair<int, int>> result;
  for (int round = 0, first = 0; round < rounds; ++round) {
    const int size = shape.micro_batches / rounds + (round < shape.micro_batches % rounds ? 1 : 0);
    result.emplace_back(first, first + size);
    first += size;
  }
  return result;
}

std::vector<Action> order_of(const Shape& shape, int rank, ActionKind kind) {
  std::vector<Action> order;
  const int last = shape.stages_per_rank - 1;
  for (const auto& [first, end] : rounds_of(shape)) {
    for (int turn = 0; turn <= last; ++turn) {
      const int local = kind == ActionKind::kForward ? turn : last - turn;
      const int stage = local * shape.ranks + rank;
      for (int micro_batch = first; micro_batch < end; ++micro_batch) {
        order.push_back({stage, kind, micro_batch});
      }
    }
  }
  return order;
}

Form form_of(ScheduleKind kind, const Shape& shape, int rank) {
  const int after = shape.ranks - 1 - rank;
  const auto [first, end] = rounds_of(shape).front();
  const int all = shape.stages_per_rank * shape.micro_batches;
  const int other_stages = (shape.stages_per_rank - 1) * (end - first);
  switch (kind) {
    case ScheduleKind::kSequential:
      return {0, {}};
    case ScheduleKind::kGPipe:
      return {all, {}};
    case ScheduleKind::k1F1B:
      return {std::min(after, all), {}};
    case ScheduleKind::kInterleaved:
      return {std::min(other_stages + 2 * after, all), {}};
    case ScheduleKind::kZeroBubble:
      return {std::min(other_stages + after, all), rank};
  }
  throw InvalidArgument(concat("make_schedule: there is no such kind: ", static_cast<int>(kind)));
}

std::vector<Action> actions_of(const Form& form, const Shape& shape, int rank) {
  const bool split = form.weight_delay.has_value();
  const auto forwards = order_of(shape, rank, ActionKind::kForward);
  const auto backwards =
      order_of(shape, rank, split ? ActionKind::kBackwardInput : ActionKind::kBackward);
  const auto weights = split ? order_of(shape, rank, ActionKind::kBackwardWeight) : forwards;
  const auto warm_up = static_cast<std::size_t>(form.warm_up);
  const auto delay = static_cast<std::size_t>(form.weight_delay.value_or(0));
  auto forward = forwards.begin() + form.warm_up;
  auto weight = weights.begin();
  std::vector<Action> actions(forwards.begin(), forward);
  actions.reserve(warm_up + 3 * backwards.size());
  for (std::size_t index = 0; index < backwards.size(); ++index) {
    if (forward != forwards.end()) actions.push_back(*forward++);
    actions.push_back(backwards[index]);
    if (split && index >= delay) actions.push_back(*weight++);
  }
  if (split) actions.insert(actions.end(), weight, weights.end());
  return actions;
}

bool takes_several_stages(ScheduleKind kind) {
  return kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kZeroBubble;
}

void check_places(ScheduleKind kind, int ranks, int stages) {
  check(stages >= ranks, name_of(kind), ": ", ranks, " places but only ", stages,
      " stages: cut the model into ", ranks, " stages or take ", stages, " places");
  check(stages == ranks || takes_several_stages(kind), name_of(kind),
      ": fewer places than stages: ", ranks, " < ", stages, "; take ", stages, " places",
      stages % ranks == 0
          ? concat(", cut the model into ", ranks, " stages, or take the schedule interleaved")
          : concat(", or cut the model into ", ranks, " stages"));
  check(stages % ranks == 0, name_of(kind),
      ": the number of stages must be a multiple of the places: ", stages, " stages, ", ranks,
      " places; cut the model into ", stages - stages % ranks, " or ",
      stages - stages % ranks + ranks, " stages");
}

void check_numbers(ScheduleKind kind, int ranks, int stages, int micro_batches) {
  check(ranks >= 1, name_of(kind), ": at least one place is needed: ", ranks);
  check(stages >= 1, name_of(kind), ": at least one stage is needed: ", stages);
  check(micro_batches >= 1, name_of(kind),
      ": the batch must be cut into at least 1 micro-batch: ", micro_batches,
      "; 1 leaves it whole");
  check_places(kind, ranks, stages);
}

}  // namespace

std::string to_string(const Action& action) {
  return concat(action.stage, name_of(action.kind), action.micro_batch);
}

Action parse_action(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t kind_at = std::min(text.find_first_not_of(kDigits), text.size());
  const std::size_t kind_end = text.find_last_not_of(kDigits) + 1;  // npos + 1 is 0
  const std::size_t kind_size = kind_end > kind_at ? kind_end - kind_at : 0;
  const auto stage = parse_number<int>(text.substr(0, kind_at));
  const auto kinds = names_of(ActionKind{});
  const auto* const kind = std::ranges::find(
      kinds, text.substr(kind_at, kind_size), [](const auto& entry) { return entry.name; });
  const auto micro_batch = parse_number<int>(text.substr(kind_at + kind_size));
  check(stage && kind != kinds.end() && micro_batch, "parse_action: not an action: '", text,
      "'; write stage, kind (F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B) and micro-batch, as 1F0");
  return {*stage, kind->value, *micro_batch};
}

ScheduleKind schedule_kind(std::string_view name) {
  for (const auto& entry : names_of(ScheduleKind{}))
    if (entry.name == name) return entry.value;
  throw InvalidArgument(
      concat("schedule: unknown name '", name, "'; there are ", joined(all_names<ScheduleKind>())));
}

Schedule make_schedule(ScheduleKind kind, int ranks, int stages, int micro_batches) {
  check_numbers(kind, ranks, stages, micro_batches);
  const Shape shape{ranks, stages / ranks, micro_batches};
  Schedule schedule{kind, stages, ranks, micro_batches, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    schedule.actions.push_back(actions_of(form_of(kind, shape, rank), shape, rank));
  }
  return schedule;
}

bool recomputes(Checkpoint checkpoint, int micro_batch, int micro_batches) {
  if (checkpoint == Checkpoint::kExceptLast) return micro_batch + 1 < micro_batches;
  return checkpoint == Checkpoint::kAlways;
}

}  // namespace lockstep
