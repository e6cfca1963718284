#include "lockstep/parallel/pipeline/runner.h"

#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"

namespace lockstep {
Runner::Runner(std::vector<Stage> own, int stages, int ranks, Links& links)
    : own_(std::move(own)), stages_(stages), ranks_(ranks), links_(links) {}

Stage& Runner::stage(int index) {
  for (Stage& candidate : own_) {
    if (candidate.index() == index) return candidate;
  }
  throw Error(concat("pipeline: stage ", index, " is not on this rank"));
}

bool Runner::is_own(int stage) const { return own_.front().index() % ranks_ == stage % ranks_; }

void Runner::begin_step(const StepPlan& plan) {
  plan_ = plan;
  here_.clear();
  StepPlan before_the_last = plan;
  before_the_last.loss = nullptr;
  for (Stage& stage : own_) stage.begin_step(stage.index() + 1 == stages_ ? plan : before_the_last);
}

void Runner::put(const Address& address, Payload payload) {
  here_.insert_or_assign(address, std::move(payload));
}

Payload Runner::take(const Address& address) {
  auto found = here_.extract(address);
  if (found.empty()) throw Error("pipeline: no stage has produced the value that was asked for");
  return std::move(found.mapped());
}

Payload Runner::arriving(const Address& address) {
  if (here_.contains(address)) return take(address);
  return links_.receive(address);
}

// What lies outside of the pipeline stays here for take().
void Runner::hand_on(const Address& address, Payload payload) {
  const bool outside = address.stage < 0 || address.stage == stages_;
  if (outside || is_own(address.stage)) {
    put(address, std::move(payload));
  } else {
    links_.send(address, payload);
  }
}

void Runner::run(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    links_.poll();
    run(action);
  }
  links_.flush();
}

void Runner::run(const Action& action) {
  Stage& own = stage(action.stage);
  switch (action.kind) {
    case ActionKind::kForward:
      return forward(own, action);
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      return backward(own, action);
    case ActionKind::kBackwardWeight: {
      const SpanScope span(Activity::kBackward, "backward of weights");
      return own.backward_weight(action.micro_batch);
    }
    default:
      return;  // transfers follow from the others
  }
}

void Runner::forward(Stage& own, const Action& action) {
  const Payload input = arriving({Direction::kForward, action.stage, action.micro_batch});
  Payload output = [&] {
    const SpanScope span(Activity::kForward, "forward");
    return own.forward(action.micro_batch, input);
  }();
  hand_on({Direction::kForward, action.stage + 1, action.micro_batch}, std::move(output));
}

void Runner::backward(Stage& own, const Action& action) {
  const bool from_loss = has_loss() && action.stage + 1 == stages_;
  const Payload gradient =
      from_loss ? Payload() : arriving({Direction::kBackward, action.stage, action.micro_batch});
  const bool whole = action.kind == ActionKind::kBackward;
  Payload back = [&] {
    const SpanScope span(Activity::kBackward, "backward");
    return whole ? own.backward(action.micro_batch, gradient)
                 : own.backward_input(action.micro_batch, gradient);
  }();
  hand_on({Direction::kBackward, action.stage - 1, action.micro_batch}, std::move(back));
}

void Runner::end_step() {
  for (Stage& stage : own_) stage.end_step();
  here_.clear();
}

}  // namespace lockstep
