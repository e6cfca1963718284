#include "bench/statistics/estimate_text.h"
#include "bench/studies/ddp_scaling/study.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::ddp_scaling {
namespace {

const Cell* fair_cell(const Cells& cells, int nodes, int places, const std::string& started_by) {
  const Cell* cell = find(cells, nodes, places, started_by);
  return cell != nullptr && cell->is_fair() ? cell : nullptr;
}

std::string times_text(const Estimate& ratio) {
  const std::string times = concat(ratio_text(ratio.median), " times");
  return ratio.count < 2 ? times : concat(times, " (", interval_text(ratio), ")");
}

std::string paid(const Cells& cells, const Cell* cell) {
  const auto faster = cell == nullptr ? std::nullopt : speed_up(cells, *cell);
  if (!faster) return "";
  return concat(cell->name(), ", started by ", cell->launcher(), ", were ", times_text(*faster),
      " as fast as one place: ", verdict_on(*faster, "faster", "slower"), ".");
}

std::string about_launchers(const Cells& cells) {
  const auto ratio =
      ratio_of(fair_cell(cells, 1, 2, "torchrun"), fair_cell(cells, 1, 2, "run"), kRunSeconds);
  if (!ratio) return "";
  return concat("The training took ", times_text(*ratio),
      " as long under torchrun as under lockstep run: ", verdict_on(*ratio, "longer", "shorter"),
      "; the table of epochs has the overhead of starting.");
}

std::string about_launchers_of_nodes(const Cells& cells) {
  const auto ratio = ratio_of(
      fair_cell(cells, 2, 4, kHostsTorchrun), fair_cell(cells, 2, 4, "hosts"), kRunSeconds);
  if (!ratio) return "";
  return concat("On two nodes it took ", times_text(*ratio),
      " as long by torchrun on each as by lockstep run: ", verdict_on(*ratio, "longer", "shorter"),
      ".");
}

std::string about_network(const Cells& cells) {
  const auto ratio =
      ratio_of(fair_cell(cells, 2, 2, "hosts"), fair_cell(cells, 1, 2, "run"), kRunSeconds);
  if (!ratio) return "";
  return concat("The same two places took ", times_text(*ratio),
      " as long on two nodes as on one: ", verdict_on(*ratio, "longer", "shorter"), ".");
}

std::string about_four(const Cells& cells) {
  const Cell* four = find(cells, 2, 4, "hosts");
  if (four == nullptr) return "";
  if (four->result.oversubscribed) return about_oversubscribed("Four places on two nodes");
  const auto ratio =
      ratio_of(fair_cell(cells, 2, 4, "hosts"), fair_cell(cells, 1, 2, "run"), kRunSeconds);
  if (!ratio) return "";
  const char* advice = above_one(ratio)   ? ": stay on one node."
                       : below_one(ratio) ? ": the second node pays."
                                          : ".";
  return concat("Four places on two nodes took ", times_text(*ratio), " as long as two on one, ",
      verdict_on(*ratio, "longer", "shorter"), advice);
}

std::string about_evaluation(const Cells& cells) {
  const Cell* one = find(cells, 1, 1, "train");
  const auto whole = one == nullptr ? std::nullopt : one->median(kWholeSeconds);
  const auto training = one == nullptr ? std::nullopt : one->median(kRunSeconds);
  if (!whole || !training) return "";
  return concat(
      "With an evaluation and a checkpoint after each epoch, as the study timed it, ten "
      "epochs of one place took ",
      seconds_text(*whole), " s, of which training ", seconds_text(*training),
      " s; the comparisons here are of training alone.");
}

std::string about_share(const Cells& cells) {
  const double share = least_epoch_share(cells);
  if (share >= 1) return "";
  return concat("Times are extrapolated from ", percent_text(share), " of an epoch or more.");
}

// What explains that the study's four GPUs were no faster than one.
std::string about_the_study() {
  constexpr double kRate = 1e9;
  const double one = *published_seconds(1, 1, "train"), bytes = seconds_on_link(4, kRate);
  return concat("The study's four GPUs on two nodes took ",
      seconds_text(*published_seconds(2, 4, "hosts")), " s where one took ", seconds_text(one),
      " s. Gradients alone take ", seconds_text(bytes),
      " s at 1 Gbit/s, and a quarter of the computing ", seconds_text(one / 4),
      " s: a network of that rate would explain it. A larger set would change nothing: computing "
      "and bytes both grow with it.");
}

}  // namespace

page::Conclusion conclusion(const Cells& cells) {
  const std::string answer = in_one(
      {paid(cells, fair_cell(cells, 1, 2, "run")), paid(cells, fair_cell(cells, 2, 2, "hosts"))});
  const auto faster = [&](const Cell& cell) { return speed_up(cells, cell); };
  return {.answer = answer.empty()
                        ? "No cell with several places has a number and cores of its own."
                        : answer,
      .remarks = said({about_launchers(cells), about_launchers_of_nodes(cells),
          about_network(cells), about_four(cells), verdict_of_fair(cells, faster).explained(),
          about_evaluation(cells), about_share(cells), about_missing(results_of(cells)),
          about_the_study()})};
}

}  // namespace lockstep::bench::ddp_scaling
