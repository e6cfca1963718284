#include "lockstep/nn/exported/segments.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/exported/shared_memory.h"
#include "lockstep/nn/exported/step_queries.h"

namespace lockstep::nn::exported {
namespace {

constexpr std::size_t kNeighbourhood = 16;  // cuts that are a 16th of the steps apart compete
constexpr double kClearlyLess = 0.75;       // by bytes
constexpr std::size_t kSmallest = 100;      // a segment has more than a 100th of the steps

/// A call of a module of Python.
struct Call {
  std::string module;
  std::size_t number = 0;                                       // of the calls of this module
  friend auto operator<=>(const Call&, const Call&) = default;  // NOLINT(modernize-use-nullptr)
};

/// A place where a program may be cut: before a step, the first one of a call.
struct Cut {
  Call call;
  std::size_t step = 0;
  double bytes = 0;
};

// LibTorch's schemas do not say that norms write to their statistics.
bool moves_statistics(const Step& step) {
  const bool is_norm =
      step.operation && step.operation->schema().name().find("_norm") != std::string::npos;
  return is_norm || std::ranges::any_of(step.nodes, moves_statistics);
}

/// The steps between which a value, or all that shares its memory, is used.
struct Reach {
  std::size_t first = std::numeric_limits<std::size_t>::max(), last = 0;

  bool is_empty() const { return first > last; }
  void include(std::size_t step) {
    first = std::min(first, step);
    last = std::max(last, step);
  }
  void include(const Reach& other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
  }
};

/// The lives of a program's values.
class Lives {
 public:
  Lives(const Code& code, const Program& program, const std::vector<std::string>& outputs)
      : code_(code),
        program_(program),
        parts_(program.graph.parts()),
        memory_(parts_),
        uses_(parts_.values),
        made_(parts_.values, 0),
        steps_of_input_(parts_.inputs) {
    for (std::size_t step = 0; step < parts_.steps.size(); ++step) read(step);
    for (const Place place : places_of(program, outputs)) uses_[index(place)].include(steps());
    join_tied();
    forbidden_.resize(steps() + 1);
    for (std::size_t i = 0; i < program.inputs.size(); ++i) {
      forbid_for_input(i);
      forbid_for_memory(i);
    }
    for (const Program::Output& output : program.outputs) forbid_for_output(output);
  }

  std::size_t steps() const { return parts_.steps.size(); }

  /// Memory that is still written to does not travel either: the other side of a cut keeps it, to
  /// compute again.
  bool is_forbidden(std::size_t step) const {
    return forbidden_[step] || std::ranges::any_of(alive(step),
                                   [&](Place place) { return memory_.is_written(place, step); });
  }

  /// Returns the user's inputs and the results that are alive before a step.
  std::vector<Place> alive(std::size_t step) const {
    std::vector<Place> places;
    for (std::size_t value = 0; value < parts_.values; ++value)
      if (!is_held(value) && is_alive(value, step)) places.push_back(static_cast<Place>(value));
    return places;
  }

  double bytes_alive(std::size_t step) const {
    double bytes = 0;
    for (const Place place : alive(step)) bytes += parts_.bytes[index(place)];
    return bytes;
  }

  /// Returns the step that computes an output of the graph; 0 for an input that is handed out.
  std::size_t maker_of_output(std::size_t output) const {
    const std::size_t value = index(parts_.outputs[output].place);
    return value < parts_.inputs ? 0 : made_[value];
  }

  /// Returns where a held input of the graph is used, by any of a parameter's names.
  const Reach& reach_of_input(std::size_t input) const { return uses_[first_of_tied_[input]]; }
  std::size_t first_of_tied(std::size_t input) const { return first_of_tied_[input]; }

  /// Returns whether steps use a held input under this name.
  bool is_used(std::size_t input, std::size_t begin, std::size_t end) const {
    return std::ranges::any_of(
        steps_of_input_[input], [&](std::size_t step) { return begin <= step && step < end; });
  }

 private:
  using Input = Program::Input::Kind;
  using Output = Program::Output::Kind;

  static std::size_t index(Place place) { return static_cast<std::size_t>(place); }

  bool is_held(std::size_t value) const {
    return value < program_.inputs.size() && program_.inputs[value].kind == Input::kHeld;
  }

  // A value is made after its step.
  bool is_alive(std::size_t value, std::size_t before) const {
    const bool is_made = value < parts_.inputs || made_[value] < before;
    return is_made && !uses_[value].is_empty() && uses_[value].last >= before;
  }

  void read(std::size_t number) {
    const Step& step = parts_.steps[number];
    for (const Operand& operand : step.operands)
      visit_values(operand, [&](Place place) {
        uses_[index(place)].include(number);
        if (index(place) < parts_.inputs) steps_of_input_[index(place)].push_back(number);
      });
    visit_results(step, [&](Place place) { made_[index(place)] = number; });
  }

  void join_tied() {
    std::map<std::size_t, std::size_t> first;
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      first_of_tied_.push_back(i);
      if (!is_held(i)) continue;
      const std::size_t tensor = code_.held[program_.inputs[i].index].first;
      first_of_tied_[i] = first.try_emplace(tensor, i).first->second;
      if (first_of_tied_[i] != i) uses_[first_of_tied_[i]].include(uses_[i]);
    }
  }

  // Between two steps that must stay together.
  void forbid(const Reach& reach) {
    for (std::size_t step = reach.first + 1; step <= std::min(reach.last, steps()); ++step)
      forbidden_[step] = true;
  }

  void forbid_for_input(std::size_t input) {
    if (!is_held(input)) return;
    const HeldTensor::Kind kind = code_.held[program_.inputs[input].index].kind;
    const bool is_buffer =
        kind == HeldTensor::Kind::kBuffer || kind == HeldTensor::Kind::kUnsavedBuffer;
    const auto& used = steps_of_input_[input];
    if (is_buffer && std::ranges::any_of(used,
                         [&](std::size_t step) { return moves_statistics(parts_.steps[step]); }))
      forbid(reach_of_input(input));
  }

  // What goes into a buffer, or an input, is computed where that is read.
  void forbid_for_output(const Program::Output& output) {
    if (output.kind != Output::kIntoHeld && output.kind != Output::kIntoInput) return;
    const auto number = static_cast<std::size_t>(&output - program_.outputs.data());
    Reach reach;
    reach.include(maker_of_output(number));
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      const bool is_same = program_.inputs[i].index == output.index &&
                           is_held(i) == (output.kind == Output::kIntoHeld) &&
                           program_.inputs[i].kind != Input::kUnused;
      if (is_same) reach.include(uses_[i]);
    }
    if (output.kind == Output::kIntoInput) reach.include(0);
    if (!reach.is_empty()) forbid(reach);
  }

  // Memory of the module that is written to: all that shares it.
  void forbid_for_memory(std::size_t input) {
    const auto place = static_cast<Place>(input);
    if (!is_held(input) || !memory_.is_written(place)) return;
    Reach reach;
    for (std::size_t value = 0; value < parts_.values; ++value)
      if (memory_.group_of(static_cast<Place>(value)) == memory_.group_of(place))
        reach.include(uses_[value]);
    if (!reach.is_empty()) forbid(reach);
  }

  const Code& code_;
  const Program& program_;
  const GraphParts& parts_;
  SharedMemory memory_;
  std::vector<Reach> uses_;
  std::vector<std::size_t> made_;
  std::vector<std::vector<std::size_t>> steps_of_input_;
  std::vector<std::size_t> first_of_tied_;
  std::vector<bool> forbidden_;
};

// Returns how many of a step's modules the step before was called in, too: calls of the others
// begin with the step.
std::size_t calls_that_go_on(const std::vector<Step>& steps, std::size_t step) {
  if (step == 0) return 1;  // the model's
  const auto &before = steps[step - 1].modules, &now = steps[step].modules;
  const auto differs = std::ranges::mismatch(before, now).in2;
  return std::max<std::size_t>(1, static_cast<std::size_t>(differs - now.begin()));
}

// The calls that begin within the program after another one, the outermost of those that begin at
// one step.
std::vector<Cut> calls_in(const GraphParts& parts) {
  std::vector<Cut> cuts;
  std::map<std::string, std::size_t> numbers;
  for (std::size_t step = 0; step < parts.steps.size(); ++step) {
    const auto& stack = parts.steps[step].modules;
    const std::size_t begins = calls_that_go_on(parts.steps, step);
    if (begins < stack.size() && !numbers.empty())
      cuts.push_back({{stack[begins], numbers[stack[begins]]}, step});
    for (std::size_t depth = begins; depth < stack.size(); ++depth) ++numbers[stack[depth]];
  }
  return cuts;
}

// The first module of which a call lies within the steps, the outermost of those.
std::string name_of(const std::vector<Step>& steps, std::size_t begin, std::size_t end) {
  for (std::size_t step = begin; step < end; ++step) {
    const auto& stack = steps[step].modules;
    for (std::size_t depth = calls_that_go_on(steps, step); depth < stack.size(); ++depth) {
      if (end == steps.size()) return stack[depth];
      const auto& after = steps[end].modules;
      const bool goes_on = calls_that_go_on(steps, end) > depth && after.size() > depth &&
                           after[depth] == stack[depth];
      if (!goes_on) return stack[depth];
    }
  }
  return begin < end && steps[begin].modules.size() > 1 ? steps[begin].modules.back() : "net";
}

// See Note [Cutting a program].
std::vector<Cut> best_of(std::vector<Cut> cuts, std::size_t steps) {
  const std::size_t near = std::max<std::size_t>(1, steps / kNeighbourhood);
  std::vector<Cut> best;
  std::ranges::copy_if(cuts, std::back_inserter(best), [&](const Cut& cut) {
    return std::ranges::none_of(cuts, [&](const Cut& other) {
      const std::size_t distance =
          cut.step < other.step ? other.step - cut.step : cut.step - other.step;
      return distance <= near && other.bytes < kClearlyLess * cut.bytes;
    });
  });
  std::vector<Cut> kept;
  for (const Cut& cut : best) {
    const std::size_t begin = kept.empty() ? 0 : kept.back().step;
    if (cut.step - begin > steps / kSmallest && steps - cut.step > steps / kSmallest)
      kept.push_back(cut);
  }
  return kept;
}

// The steps before which each program is cut, in order, with the names of the segments.
struct Chosen {
  std::vector<std::string> names;
  std::vector<std::vector<std::size_t>> steps;
};

void name_segments(const Program& program, Chosen& chosen) {
  const auto& steps = program.graph.parts().steps;
  const std::vector<std::size_t>& begins = chosen.steps.front();
  std::set<std::string> taken;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::string name =
        name_of(steps, begins[i], i + 1 < begins.size() ? begins[i + 1] : steps.size());
    std::string unique = name;
    for (int again = 2; !taken.insert(unique).second; ++again) unique = concat(name, "#", again);
    chosen.names.push_back(unique);
  }
}

Chosen chosen(const Code& code, const std::vector<Lives>& lives) {
  std::vector<Cut> cuts;
  for (Cut& cut : calls_in(code.programs.front().graph.parts())) {
    cut.bytes = lives.front().bytes_alive(cut.step);
    if (cut.step > 0 && !lives.front().is_forbidden(cut.step)) cuts.push_back(std::move(cut));
  }
  std::map<Call, std::size_t> of_other;  // of two programs
  if (code.programs.size() > 1)
    for (const Cut& cut : calls_in(code.programs.back().graph.parts()))
      of_other.emplace(cut.call, cut.step);
  Chosen chosen{{}, std::vector<std::vector<std::size_t>>(code.programs.size(), {0})};
  for (const Cut& cut : best_of(std::move(cuts), lives.front().steps())) {
    if (code.programs.size() > 1) {
      const auto other = of_other.find(cut.call);
      if (other == of_other.end() || other->second <= chosen.steps.back().back() ||
          lives.back().is_forbidden(other->second))
        continue;
      chosen.steps.back().push_back(other->second);
    }
    chosen.steps.front().push_back(cut.step);
  }
  name_segments(code.programs.front(), chosen);
  return chosen;
}

std::size_t segment_at(const std::vector<std::size_t>& begins, std::size_t step) {
  return static_cast<std::size_t>(std::ranges::upper_bound(begins, step) - begins.begin()) - 1;
}

std::vector<std::size_t> owners_of(
    const Code& code, const std::vector<Lives>& lives, const Chosen& cuts) {
  std::vector<std::size_t> owners(code.held.size(), cuts.names.size());
  for (std::size_t number = 0; number < code.programs.size(); ++number) {
    const auto& inputs = code.programs[number].inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].kind != Program::Input::Kind::kHeld) continue;
      const Reach& reach = lives[number].reach_of_input(i);
      std::size_t& owner = owners[code.held[inputs[i].index].first];
      if (!reach.is_empty()) owner = std::min(owner, segment_at(cuts.steps[number], reach.first));
    }
  }
  // The first one has what nothing uses, and all of what it is tied to.
  for (std::size_t i = 0; i < owners.size(); ++i) {
    owners[i] = owners[code.held[i].first];
    if (owners[i] == cuts.names.size()) owners[i] = 0;
  }
  return owners;
}

std::vector<Segment> segments_of_program(const Code& code, const Program& program,
    const Lives& lives, const std::vector<std::size_t>& begins,
    const std::vector<std::size_t>& owners, const std::vector<std::string>& outputs) {
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < begins.size(); ++i)
    segments.push_back({begins[i], i + 1 < begins.size() ? begins[i + 1] : lives.steps()});
  for (std::size_t i = 1; i < segments.size(); ++i)
    segments[i - 1].leaving = segments[i].arriving = lives.alive(segments[i].begin);
  for (std::size_t input = 0; input < program.inputs.size(); ++input) {
    if (program.inputs[input].kind != Program::Input::Kind::kHeld) continue;
    const std::size_t held = program.inputs[input].index;
    const bool is_handed_on = code.held[held].kind == HeldTensor::Kind::kParameter;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const bool is_own = !is_handed_on || owners[held] == i;
      if (is_own && (lives.is_used(input, segments[i].begin, segments[i].end) ||
                        (is_handed_on && lives.first_of_tied(input) == input)))
        segments[i].held.push_back(input);
    }
    const Reach& reach = lives.reach_of_input(input);
    if (!is_handed_on || lives.first_of_tied(input) != input || reach.is_empty()) continue;
    for (std::size_t i = owners[held];
         i < segment_at(begins, std::min(reach.last, lives.steps() - 1)); ++i) {
      segments[i].leaving.push_back(static_cast<Place>(input));
      segments[i + 1].arriving.push_back(static_cast<Place>(input));
    }
  }
  for (std::size_t output = 0; output < program.outputs.size(); ++output) {
    const auto kind = program.outputs[output].kind;
    if (kind == Program::Output::Kind::kIntoHeld || kind == Program::Output::Kind::kIntoInput)
      segments[segment_at(begins, lives.maker_of_output(output))].stored.push_back(output);
  }
  segments.front().arriving.clear();  // the user's inputs
  segments.back().leaving = places_of(program, outputs);
  return segments;
}

}  // namespace

std::vector<Place> places_of(const Program& program, const std::vector<std::string>& outputs) {
  std::vector<Place> places;
  const auto add = [&](std::size_t number) {
    places.push_back(program.graph.parts().outputs[number].place);
  };
  for (std::size_t i = 0; i < program.outputs.size() && outputs.empty() && places.empty(); ++i)
    if (program.outputs[i].kind == Program::Output::Kind::kResult) add(i);
  for (const std::string& name : outputs) {
    const auto found = std::ranges::find_if(program.outputs, [&](const Program::Output& output) {
      return output.kind == Program::Output::Kind::kResult && output.name == name;
    });
    check(found != program.outputs.end(), "the program has no output ", name);
    add(static_cast<std::size_t>(found - program.outputs.begin()));
  }
  return places;
}

Segments segments_of(const Code& code, const std::vector<std::string>& outputs) {
  std::vector<Lives> lives;
  for (const Program& program : code.programs) lives.emplace_back(code, program, outputs);
  const Chosen cuts = chosen(code, lives);
  Segments segments{.names = cuts.names, .of_programs = {}, .owners = owners_of(code, lives, cuts)};
  for (std::size_t i = 0; i < code.programs.size(); ++i)
    segments.of_programs.push_back(segments_of_program(
        code, code.programs[i], lives[i], cuts.steps[i], segments.owners, outputs));
  return segments;
}

}  // namespace lockstep::nn::exported
