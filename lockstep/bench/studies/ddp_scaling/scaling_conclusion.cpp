#include "lockstep/bench/studies/ddp_scaling/scaling_conclusion.h"

#include <algorithm>

#include "lockstep/bench/studies/ddp_scaling/published_times.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_values.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using Cells = std::vector<ScalingCell>;

const ScalingCell* fair_cell(
    const Cells& cells, int nodes, int places, const std::string& started_by) {
  const ScalingCell* cell = scaling_cell_of(cells, nodes, places, started_by);
  return cell != nullptr && cell->is_fair() ? cell : nullptr;
}

/// Estimates how many times as long one takes as the other.
std::optional<Estimate> longer(const ScalingCell* one, const ScalingCell* other) {
  if (one == nullptr || other == nullptr) return std::nullopt;
  return ratio_of(one->result, other->result, kRunSeconds);
}

std::string range_of(const Estimate& ratio) {
  if (ratio.count < 2) return concat(ratio_text(ratio.median), " times");
  return concat(ratio_text(ratio.median), " times (", ratio_interval(ratio), ")");
}

std::string sureness_of(const std::optional<Estimate>& ratio, const char* more, const char* less) {
  if (above_one(ratio)) return more;
  if (below_one(ratio)) return less;
  return ratio->count < 2 ? "one round, so not sure" : "not told apart";
}

std::string paid(const Cells& cells, const ScalingCell* cell) {
  const auto faster = cell == nullptr ? std::nullopt : scaling_speed_up(cells, *cell);
  if (!faster) return "";
  return concat(
      cell->name(),
      ", started by ",
      cell->launcher(),
      ", were ",
      range_of(*faster),
      " as fast as one place: ",
      sureness_of(faster, "surely faster", "surely slower"),
      ". ");
}

std::string about_launchers(const Cells& cells) {
  const auto ratio = longer(fair_cell(cells, 1, 2, "torchrun"), fair_cell(cells, 1, 2, "run"));
  if (!ratio) return "";
  return concat(
      "The training took ",
      range_of(*ratio),
      " as long under torchrun as under lockstep run: ",
      sureness_of(ratio, "torchrun surely slower", "torchrun surely faster"),
      "; the table of epochs has what starting cost besides. ");
}

std::string about_network(const Cells& cells) {
  const auto ratio = longer(fair_cell(cells, 2, 2, "hosts"), fair_cell(cells, 1, 2, "run"));
  if (!ratio) return "";
  return concat(
      "The same two places took ",
      range_of(*ratio),
      " as long on two nodes as on one: ",
      sureness_of(ratio, "the network surely costs", "two nodes surely faster"),
      ". ");
}

std::string about_four(const Cells& cells) {
  const ScalingCell* four = scaling_cell_of(cells, 2, 4, "hosts");
  if (four == nullptr) return "";
  if (four->result.oversubscribed) {
    return "Four places on two nodes are more than there are cores here: such a cell is marked "
           "oversubscribed, is no fair test and no part of this. ";
  }
  const auto ratio = longer(fair_cell(cells, 2, 4, "hosts"), fair_cell(cells, 1, 2, "run"));
  if (!ratio) return "";
  const std::string advice = above_one(ratio)   ? "stay on one node"
                             : below_one(ratio) ? "the second node pays"
                                                : sureness_of(ratio, "", "");
  return concat(
      "Four places on two nodes took ", range_of(*ratio), " as long as two on one: ", advice, ". ");
}

std::string about_rounds(const Cells& cells) {
  for (const ScalingCell& cell : cells) {
    const auto faster = cell.is_fair() ? scaling_speed_up(cells, cell) : std::nullopt;
    if (!faster || faster->count < 2) continue;
    return concat(
        "Sure means that the whole interval over ",
        faster->count,
        " rounds lies on one side of 1; it holds the true ratio with a probability of ",
        percent_text(faster->confidence),
        ". ");
  }
  return "No cell has two rounds: there is no interval, and nothing is sure. ";
}

std::string about_share(const Cells& cells) {
  double share = 1;
  for (const ScalingCell& cell : cells) share = std::min(share, cell.epoch_share());
  if (share >= 1) return "";
  return concat("Times are extrapolated from ", percent_text(share), " of an epoch or more. ");
}

std::string about_missing_cells(const Cells& cells) {
  const auto missing = std::count_if(cells.begin(), cells.end(), [](const ScalingCell& cell) {
    return !cell.result.reason.empty();
  });
  if (missing == 0) return "";
  return concat(missing, " of ", cells.size(), " cells have no number: the tables say why. ");
}

// What explains that the study's four GPUs were no faster than one.
std::string about_the_study() {
  constexpr double kRate = 1e9;
  const double one = *published_run_seconds(1, 1, "train");
  const double bytes = seconds_on_link(4, kRate);
  return concat(
      "The study's four GPUs on two nodes took ",
      seconds_text(*published_run_seconds(2, 4, "hosts")),
      " s where one took ",
      seconds_text(one),
      " s. Gradients alone take ",
      seconds_text(bytes),
      " s of 1 Gbit/s, and a quarter of the computing ",
      seconds_text(one / 4),
      " s: a network of that rate would explain it. A larger set would change nothing: computing "
      "and "
      "bytes both grow with it.");
}

}  // namespace

std::string scaling_conclusion(const Cells& cells) {
  std::string text = paid(cells, fair_cell(cells, 1, 2, "run")) + about_launchers(cells) +
                     paid(cells, fair_cell(cells, 2, 2, "hosts")) + about_network(cells);
  if (text.empty()) {
    text = "No cell with several places has a number and cores of its own. ";
  } else {
    text += about_rounds(cells);
  }
  return text + about_four(cells) + about_share(cells) + about_missing_cells(cells) +
         about_the_study();
}

}  // namespace lockstep::bench
