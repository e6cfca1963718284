#include "lockstep/bench/studies/ddp_scaling/scaling_conclusion.h"

#include <algorithm>

#include "lockstep/bench/studies/conclusion_text.h"
#include "lockstep/bench/studies/ddp_scaling/published_times.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_values.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/sureness.h"
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

std::string paid(const Cells& cells, const ScalingCell* cell) {
  const auto faster = cell == nullptr ? std::nullopt : scaling_speed_up(cells, *cell);
  if (!faster) return "";
  return concat(
      cell->name(), ", started by ", cell->launcher(), ", were ", range_of(*faster),
      " as fast as one place: ", told_from_one(*faster, "faster", "slower"), ".");
}

std::string about_launchers(const Cells& cells) {
  const auto ratio = longer(fair_cell(cells, 1, 2, "torchrun"), fair_cell(cells, 1, 2, "run"));
  if (!ratio) return "";
  return concat(
      "The training took ", range_of(*ratio),
      " as long under torchrun as under lockstep run: ", told_from_one(*ratio, "longer", "shorter"),
      "; the table of epochs has what starting cost besides.");
}

std::string about_network(const Cells& cells) {
  const auto ratio = longer(fair_cell(cells, 2, 2, "hosts"), fair_cell(cells, 1, 2, "run"));
  if (!ratio) return "";
  return concat(
      "The same two places took ", range_of(*ratio),
      " as long on two nodes as on one: ", told_from_one(*ratio, "longer", "shorter"), ".");
}

std::string about_four(const Cells& cells) {
  const ScalingCell* four = scaling_cell_of(cells, 2, 4, "hosts");
  if (four == nullptr) return "";
  if (four->result.oversubscribed) return about_oversubscribed("Four places on two nodes");
  const auto ratio = longer(fair_cell(cells, 2, 4, "hosts"), fair_cell(cells, 1, 2, "run"));
  if (!ratio) return "";
  const char* advice = above_one(ratio)   ? ": stay on one node."
                       : below_one(ratio) ? ": the second node pays."
                                          : ".";
  return concat(
      "Four places on two nodes took ", range_of(*ratio), " as long as two on one, ",
      told_from_one(*ratio, "longer", "shorter"), advice);
}

std::string how_sure(const Cells& cells) {
  std::vector<Estimate> ratios;
  for (const ScalingCell& cell : cells) {
    const auto faster = cell.is_fair() ? scaling_speed_up(cells, cell) : std::nullopt;
    if (faster) ratios.push_back(*faster);
  }
  return about_sureness(ratios);
}

std::string about_share(const Cells& cells) {
  double share = 1;
  for (const ScalingCell& cell : cells) share = std::min(share, cell.epoch_share());
  if (share >= 1) return "";
  return concat("Times are extrapolated from ", percent_text(share), " of an epoch or more.");
}

// What explains that the study's four GPUs were no faster than one.
std::string about_the_study() {
  constexpr double kRate = 1e9;
  const double one = *published_run_seconds(1, 1, "train");
  const double bytes = seconds_on_link(4, kRate);
  return concat(
      "The study's four GPUs on two nodes took ",
      seconds_text(*published_run_seconds(2, 4, "hosts")), " s where one took ", seconds_text(one),
      " s. Gradients alone take ", seconds_text(bytes),
      " s of 1 Gbit/s, and a quarter of the computing ", seconds_text(one / 4),
      " s: a network of that rate would explain it. A larger set would change nothing: computing "
      "and bytes both grow with it.");
}

}  // namespace

page::Conclusion scaling_conclusion(const Cells& cells) {
  const std::string answer = in_one(
      {paid(cells, fair_cell(cells, 1, 2, "run")), paid(cells, fair_cell(cells, 2, 2, "hosts"))});
  return {
      .answer = answer.empty() ? "No cell with several places has a number and cores of its own."
                               : answer,
      .remarks = said(
          {about_launchers(cells), about_network(cells), about_four(cells), how_sure(cells),
           about_share(cells), about_missing(count_missing(cells), cells.size()),
           about_the_study()})};
}

}  // namespace lockstep::bench
