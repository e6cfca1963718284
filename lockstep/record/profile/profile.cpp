#include "lockstep/record/profile/profile.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"

namespace lockstep {
namespace {

/// A span among those of its thread.
struct PlacedSpan {
  const Span* span = nullptr;
  std::optional<std::size_t> parent = {};  ///< the span around it
  StepPhase phase = StepPhase::kOther;     ///< that its own time is for
  std::int64_t own = 0;                    ///< nanoseconds, those of the spans in it left out
};

// Of what has none of its own, where no phase is around it: a thread of a replica.
StepPhase phase_of_root(Activity activity) {
  if (activity == Activity::kLayer) return StepPhase::kForward;
  return activity == Activity::kGradientNode ? StepPhase::kBackward : StepPhase::kOther;
}

std::optional<StepPhase> own_phase(Activity activity) {
  switch (activity) {
    case Activity::kInput:
      return StepPhase::kInput;
    case Activity::kCopy:
      return StepPhase::kCopy;
    case Activity::kForward:
      return StepPhase::kForward;
    case Activity::kBackward:
      return StepPhase::kBackward;
    case Activity::kStages:
      return StepPhase::kStages;
    case Activity::kCommunication:
      return StepPhase::kCommunication;
    case Activity::kIdle:
      return StepPhase::kIdle;
    case Activity::kOptimizer:
      return StepPhase::kOptimizer;
    case Activity::kStep:
      return StepPhase::kOther;
    default:
      return std::nullopt;
  }
}

// A message that a stage waits for is idle time, whoever carries it.
StepPhase phase_of(Activity activity, const PlacedSpan* around) {
  if (around != nullptr && around->phase == StepPhase::kIdle) return StepPhase::kIdle;
  if (const auto own = own_phase(activity)) return *own;
  return around == nullptr || around->phase == StepPhase::kOther ? phase_of_root(activity)
                                                                 : around->phase;
}

std::vector<const Span*> in_order(const SpanLane& lane) {
  std::vector<const Span*> order;
  for (const Span& span : lane.spans)
    if (span.activity != Activity::kReduction) order.push_back(&span);
  // Spans are recorded when they end, so of two alike the later one is around the other.
  std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(), [](const Span* a, const Span* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
  });
  return order;
}

// The spans of a thread in the order of their begins, each after the one around it. Reductions are
// left out: they are beside what the thread does.
std::vector<PlacedSpan> placed(const SpanLane& lane) {
  std::vector<PlacedSpan> all;
  std::optional<std::size_t> around;
  for (const Span* span : in_order(lane)) {
    while (around && all[*around].span->end <= span->begin) around = all[*around].parent;
    const PlacedSpan* const parent = around ? &all[*around] : nullptr;
    const std::int64_t whole = span->end - span->begin;
    if (around) all[*around].own -= whole;
    all.push_back(
        {.span = span, .parent = around, .phase = phase_of(span->activity, parent), .own = whole});
    around = all.size() - 1;
  }
  return all;
}

// Calls `use` with each stretch of a thread's time, in order, and the innermost span there.
void for_each_stretch(const std::vector<PlacedSpan>& spans,
    const std::function<void(std::size_t index, std::int64_t begin, std::int64_t end)>& use) {
  std::optional<std::size_t> current;
  std::int64_t from = 0;
  const auto until = [&](std::int64_t time) {
    if (current && time > from) use(*current, from, time);
    from = std::max(from, time);
  };
  const auto leave = [&] {
    until(spans[*current].span->end);
    current = spans[*current].parent;
  };
  for (std::size_t index = 0; index < spans.size(); ++index) {
    while (current != spans[index].parent) leave();
    until(spans[index].span->begin);
    from = spans[index].span->begin;
    current = index;
  }
  while (current) leave();
}

const std::string& no_layer() {
  static const std::string kNone;
  return kNone;
}

const std::string& layer_around(const std::vector<PlacedSpan>& spans, std::size_t index) {
  const Span& span = *spans[index].span;
  if (!span.layer.empty()) return span.layer;
  if (span.activity == Activity::kLayer) return span.name;
  return spans[index].parent ? layer_around(spans, *spans[index].parent) : no_layer();
}

/// The layers to which the time of a model's forward and backward belongs.
///
/// Note [Layers in a profile]
/// The operators that a forward calls know no modules. One that reads parameters belongs to the
/// module that owns these, so that works for every net; the others belong to the layer of the
/// model's chain in which they run. Backward runs the nodes that an operator made: autograd numbers
/// the nodes of each thread, so the numbers that were given out during an operator, or a layer, say
/// which of them are its own.
class LayerNames {
 public:
  /// Learns which nodes the spans of a thread have made; inner ones come later and have the last
  /// word.
  void learn(const SpanLane& lane, const std::vector<PlacedSpan>& spans) {
    for (std::size_t index = 0; index < spans.size(); ++index) {
      const Span& span = *spans[index].span;
      if (span.activity != Activity::kLayer && span.activity != Activity::kOperator) continue;
      const std::string& layer = layer_around(spans, index);
      if (layer.empty()) continue;
      for (std::uint64_t node = span.first_node; node < span.end_node; ++node)
        makers_.insert_or_assign({lane.number, node}, layer);
    }
  }

  /// Returns the layer that a span's own time belongs to; empty: none.
  const std::string& of(const std::vector<PlacedSpan>& spans, std::size_t index) const {
    const Span& span = *spans[index].span;
    if (span.activity == Activity::kGradientNode) {
      const auto found = makers_.find({span.maker, span.first_node});
      return found == makers_.end() ? no_layer() : found->second;
    }
    return layer_around(spans, index);
  }

 private:
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> makers_;  // by thread and node
};

constexpr double kNanosecondsOfMillisecond = 1e6;
constexpr double kShortestBox = 1.0 / 2000;  // of a step: shorter ones are not to be seen

double since(const Span& step, std::int64_t time) {
  return static_cast<double>(time - step.begin) / kNanosecondsOfMillisecond;
}

bool makes_nodes(const std::vector<PlacedSpan>& spans) {
  return std::ranges::any_of(
      spans, [](const PlacedSpan& span) { return span.span->activity == Activity::kGradientNode; });
}

// Of convolutions and matrix products, which have arithmetic: LibTorch's operators and ours.
bool is_convolution(const Span& span) {
  return span.name.find("conv") != std::string::npos || span.name == "lockstep::joined_maps";
}

/// The spans of all threads, each with what is around it.
class Analysis {
 public:
  explicit Analysis(const std::vector<SpanLane>& lanes) : lanes_(lanes) {
    for (const SpanLane& lane : lanes) {
      spans_.push_back(placed(lane));
      names_.learn(lane, spans_.back());
      for (const Span& span : lane.spans)
        if (span.activity == Activity::kStep) steps_.push_back(&span);
    }
    if (steps_.empty()) throw DataError("profile: no whole step was recorded");
  }

  RankProfile result() {
    double nanoseconds = 0;
    for (const Span* step : steps_) nanoseconds += static_cast<double>(step->end - step->begin);
    profile_.steps = static_cast<std::int64_t>(steps_.size());
    profile_.step = a_step(nanoseconds);
    add_lanes();
    add_layers();
    add_operators();
    add_reductions();
    add_timeline();
    return std::move(profile_);
  }

 private:
  void add_lanes() {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
      if (lanes_[lane].is_main) shown_.push_back(lane);
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
      if (!lanes_[lane].is_main && is_of_interest(lane)) shown_.push_back(lane);
    for (const std::size_t lane : shown_) profile_.lanes.push_back(times_of(lane));
    if (profile_.lanes.empty()) return;
    const double stages = profile_.lanes.front().of(StepPhase::kStages);
    if (stages == 0) return;
    for (LaneProfile& lane : profile_.lanes)
      if (!lane.is_main) count_wait_for_others(lane, stages);
  }

  // LibTorch computes the backward of an accelerator on a thread of its own; others wait for it.
  void add_layers() {
    std::map<std::string, LayerProfile> layers;
    for (const auto& spans : spans_) {
      const bool only_waits = !makes_nodes(spans);
      for (std::size_t index = 0; index < spans.size(); ++index) {
        const PlacedSpan& span = spans[index];
        const bool is_forward = span.phase == StepPhase::kForward;
        if (!is_forward && span.phase != StepPhase::kBackward) continue;
        if (only_waits && span.span->activity == Activity::kBackward) continue;
        LayerProfile& layer = layers[names_.of(spans, index)];
        (is_forward ? layer.forward : layer.backward) += a_step(static_cast<double>(span.own));
        layer.flops += span.span->flops;
        profile_.flops += span.span->flops;
        if (!is_convolution(*span.span)) profile_.product_flops += span.span->flops;
      }
    }
    profile_.flops /= static_cast<double>(steps_.size());
    profile_.product_flops /= static_cast<double>(steps_.size());
    for (auto& [name, layer] : layers) {
      layer.name = name;
      layer.flops /= static_cast<double>(steps_.size());
      profile_.layers.push_back(layer);
    }
    std::ranges::stable_sort(profile_.layers, [](const LayerProfile& a, const LayerProfile& b) {
      return a.forward + a.backward > b.forward + b.backward;
    });
  }

  void add_operators() {
    std::map<std::pair<std::string, bool>, OperatorProfile> operators;
    for (const SpanLane& lane : lanes_) {
      for (const Span& span : lane.spans) {
        const bool is_backward = span.activity == Activity::kGradientNode;
        if (!is_backward && span.activity != Activity::kOperator) continue;
        OperatorProfile& found = operators[{span.name, is_backward}];
        found.calls += 1.0 / static_cast<double>(steps_.size());
        found.milliseconds += a_step(static_cast<double>(span.end - span.begin));
      }
    }
    for (auto& [key, found] : operators) {
      found.name = key.first;
      found.is_backward = key.second;
      profile_.operators.push_back(found);
    }
    std::ranges::stable_sort(profile_.operators, std::greater<>(), &OperatorProfile::milliseconds);
  }

  void add_reductions() {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      for (const Span& reduction : lanes_[lane].spans) {
        if (reduction.activity != Activity::kReduction) continue;
        profile_.reduction += a_step(static_cast<double>(reduction.end - reduction.begin));
        for_each_stretch(
            spans_[lane], [&](std::size_t index, std::int64_t begin, std::int64_t end) {
              if (spans_[lane][index].phase != StepPhase::kCommunication) return;
              const auto from = std::max(begin, reduction.begin), to = std::min(end, reduction.end);
              if (to > from) profile_.exposed += a_step(static_cast<double>(to - from));
            });
      }
    }
  }

  void add_timeline() {
    std::vector<const Span*> steps = steps_;
    const auto length = [](const Span* step) { return step->end - step->begin; };
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::ranges::nth_element(steps, middle, {}, length);
    const Span& step = **middle;
    for (std::size_t lane = 0; lane < shown_.size(); ++lane) add_boxes(lane, step);
    for (const SpanLane& lane : lanes_) {
      for (const Span& span : lane.spans) {
        const bool is_within = step.begin <= span.begin && span.end <= step.end;
        if (span.activity != Activity::kReduction || !is_within) continue;
        profile_.timeline.push_back({.lane = shown_.size(),
            .phase = StepPhase::kCommunication,
            .name = span.name,
            .begin = since(step, span.begin),
            .end = since(step, span.end)});
      }
    }
  }

  void add_boxes(std::size_t lane, const Span& step) {
    const auto& spans = spans_[shown_[lane]];
    const double shortest = since(step, step.end) * kShortestBox;
    auto& boxes = profile_.timeline;
    const std::size_t first = boxes.size();
    for_each_stretch(spans, [&](std::size_t index, std::int64_t begin, std::int64_t end) {
      if (end <= step.begin || begin >= step.end) return;
      const StepPhase phase = spans[index].phase;
      std::string name = names_.of(spans, index);
      if (name.empty()) name = spans[index].span->name;
      const TimelineSpan box{lane, phase, name, since(step, std::max(begin, step.begin)),
          since(step, std::min(end, step.end))};
      const bool touches = boxes.size() > first && box.begin - boxes.back().end < shortest;
      const bool is_more = touches && boxes.back().phase == phase &&
                           (boxes.back().name == name || box.end - box.begin < shortest);
      if (is_more) {
        boxes.back().end = box.end;
      } else {
        boxes.push_back(box);
      }
    });
  }

  // Threads that load images, for example, are not: their time is not a step's.
  bool is_of_interest(std::size_t lane) const {
    const auto has_phase = [](const PlacedSpan& span) { return span.phase != StepPhase::kOther; };
    return lanes_[lane].is_main || std::ranges::any_of(spans_[lane], has_phase);
  }

  LaneProfile times_of(std::size_t lane) const {
    LaneProfile found{.thread = lanes_[lane].thread, .is_main = lanes_[lane].is_main};
    for (const PlacedSpan& span : spans_[lane])
      if (span.phase != StepPhase::kOther)
        found.of(span.phase) += a_step(static_cast<double>(span.own));
    double known = 0;
    for (const double phase : found.phases) known += phase;
    found.of(StepPhase::kOther) = profile_.step - known;
    return found;
  }

  // A stage that begins late, or is done early, is idle while the others compute.
  void count_wait_for_others(LaneProfile& lane, double stages) const {
    const double outside = profile_.step - stages;
    const double waits = lane.of(StepPhase::kOther) - outside;
    if (waits <= 0) return;
    lane.of(StepPhase::kIdle) += waits;
    lane.of(StepPhase::kOther) = outside;
  }

  double a_step(double nanoseconds) const {
    return nanoseconds / kNanosecondsOfMillisecond / static_cast<double>(steps_.size());
  }

  const std::vector<SpanLane>& lanes_;
  std::vector<std::vector<PlacedSpan>> spans_;  // of each lane
  std::vector<const Span*> steps_;
  LayerNames names_;
  RankProfile profile_;
  std::vector<std::size_t> shown_;  // lanes of the profile
};

}  // namespace

RankProfile profile_of(const std::vector<SpanLane>& lanes) { return Analysis(lanes).result(); }

std::vector<StepPhase> shown_phases(const RunProfile& profile) {
  constexpr double kLeastShown = 0.005;
  std::vector<StepPhase> found;
  for (const auto& phase : names_of(StepPhase{})) {
    const auto has_time = [&](const LaneProfile& lane) {
      return lane.of(phase.value) >= kLeastShown;
    };
    const bool is_shown = std::ranges::any_of(profile.ranks,
        [&](const RankProfile& rank) { return std::ranges::any_of(rank.lanes, has_time); });
    if (is_shown) found.push_back(phase.value);
  }
  return found;
}

double RunProfile::flops_per_second() const {
  double flops = 0;
  for (const RankProfile& rank : ranks)
    flops += rank.flops / (rank.unwaited_step.value_or(rank.step) / 1e3);
  return flops;
}

std::optional<double> RunProfile::peak() const {
  double sum = 0;
  for (const RankProfile& rank : ranks) {
    if (!rank.peak) return std::nullopt;
    sum += *rank.peak;
  }
  return sum;
}

}  // namespace lockstep
