#include <algorithm>
#include <cstdio>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/record/profile/profile.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostLayers = 20, kMostOperators = 10;
constexpr double kGiga = 1e9;

using Cells = std::vector<std::string>;

std::string number(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// A file may be a stranger's, and what it says goes to a terminal.
std::string shown(const std::string& name) {
  constexpr std::size_t kLongest = 60;
  const bool is_plain =
      std::ranges::all_of(name, [](char letter) { return letter >= 0x20 && letter < 0x7f; });
  return is_plain && name.size() <= kLongest ? name : printable(name);
}

std::string milliseconds(double value) { return number(value, 2); }

// Names to the left, numbers to the right; columns without a value but the first are left out.
std::string aligned(const std::vector<Cells>& rows, std::size_t names) {
  std::string text;
  for (const Cells& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const Cells& each : rows) width = std::max(width, each[column].size());
      const std::string space(width - row[column].size(), ' ');
      const bool is_name = column < names;
      text += (column == 0 ? "  " : "   ") + (is_name ? row[column] + space : space + row[column]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string phase_table(const RunProfile& profile) {
  const auto phases = shown_phases(profile);
  std::vector<Cells> rows(1, {"rank", "thread", "step"});
  for (const StepPhase phase : phases) rows.front().emplace_back(name_of(phase));
  for (const RankProfile& rank : profile.ranks) {
    for (const LaneProfile& lane : rank.lanes) {
      Cells row{std::to_string(rank.rank), lane.is_main ? "main" : shown(lane.thread),
          milliseconds(rank.step)};
      for (const StepPhase phase : phases) row.push_back(milliseconds(lane.of(phase)));
      rows.push_back(std::move(row));
    }
  }
  return aligned(rows, 2);
}

// Of an accelerator.
std::string waits_text(const RankProfile& rank) {
  if (!rank.unwaited_step) return "";
  return concat("rank ", rank.rank, ": each operator was waited for; without that a step takes ",
      milliseconds(*rank.unwaited_step), " ms\n");
}

// Of a pipeline: how long its stages wait for each other.
std::string bubble_text(const RankProfile& rank) {
  std::string text;
  for (const LaneProfile& lane : rank.lanes) {
    const double idle = lane.of(StepPhase::kIdle);
    const double busy = lane.of(StepPhase::kForward) + lane.of(StepPhase::kBackward);
    if (idle == 0 || busy == 0) continue;
    text += concat("rank ", rank.rank, ", ", lane.is_main ? "main" : shown(lane.thread), ": ",
        number(100 * idle / (idle + busy), 0), " % of the pipeline's time is idle (bubble)\n");
  }
  return text;
}

std::string reduction_text(const RankProfile& rank) {
  if (rank.reduction <= 0) return "";
  const double hidden = std::max(0.0, rank.reduction - rank.exposed);
  return concat("rank ", rank.rank, ": gradients are ", milliseconds(rank.reduction),
      " ms on their way, ", number(100 * hidden / rank.reduction, 0),
      " % of it hidden behind backward\n");
}

std::string shown_layer(const std::string& name) {
  return name.empty() ? "outside of layers" : shown(name);
}

std::string layer_table(const RankProfile& rank) {
  std::vector<Cells> rows(1, {"layer", "forward", "backward", "GFLOP"});
  LayerProfile rest;
  for (std::size_t i = 0; i < rank.layers.size(); ++i) {
    const LayerProfile& layer = rank.layers[i];
    if (i < kMostLayers) {
      rows.push_back({shown_layer(layer.name), milliseconds(layer.forward),
          milliseconds(layer.backward), number(layer.flops / kGiga, 3)});
      continue;
    }
    rest.forward += layer.forward;
    rest.backward += layer.backward;
    rest.flops += layer.flops;
  }
  if (rank.layers.size() > kMostLayers)
    rows.push_back({concat(rank.layers.size() - kMostLayers, " others"), milliseconds(rest.forward),
        milliseconds(rest.backward), number(rest.flops / kGiga, 3)});
  return aligned(rows, 1);
}

std::string operator_table(const RankProfile& rank) {
  std::vector<Cells> rows(1, {"operator", "calls", "ms"});
  for (std::size_t i = 0; i < std::min(kMostOperators, rank.operators.size()); ++i) {
    const OperatorProfile& each = rank.operators[i];
    rows.push_back({shown(each.name), number(each.calls, 1), milliseconds(each.milliseconds)});
  }
  return aligned(rows, 1);
}

}  // namespace

std::string arithmetic_text(const RunProfile& profile) {
  const double rate = profile.flops_per_second();
  if (rate <= 0) return "";
  std::string text =
      concat("Convolutions and matrix products: ", number(rate / kGiga, 1), " GFLOP/s");
  if (const auto peak = profile.peak())
    text += concat(", ", number(100 * rate / *peak, 1), " % of the ", number(*peak / kGiga, 1),
        " that products of large matrices reach here (", profile.precision, ")",
        rate > *peak ? "; Winograd's form makes fewer operations than are counted" : "");
  return text;
}

std::string profile_text(const RunProfile& profile) {
  const RankProfile& first = profile.ranks.front();
  std::string text =
      concat("Profile of ", first.steps, " steps, in milliseconds a step\n", phase_table(profile));
  for (const RankProfile& rank : profile.ranks)
    text += waits_text(rank) + reduction_text(rank) + bubble_text(rank);
  text += concat("Layers of rank ", first.rank, ", summed over its threads\n", layer_table(first),
      "Operators of rank ", first.rank, "\n", operator_table(first));
  const std::string arithmetic = arithmetic_text(profile);
  return text + arithmetic + (arithmetic.empty() ? "" : "\n");
}

}  // namespace lockstep
