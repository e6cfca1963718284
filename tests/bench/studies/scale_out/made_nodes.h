#pragma once

#include <string>
#include <vector>

#include "tests/bench/studies/made_sample.h"

#include "bench/studies/scale_out/study.h"

namespace lockstep::bench::scale_out {

/// Makes the study as two cores have it, its cells measurable wherever this is.
inline Study made_scale_out(bool full = false) {
  Study study = make_study({.full = full, .cores = 2});
  for (StudyCell& cell : study.cells) {
    if (!cell.not_measurable.starts_with("not in --quick")) cell.not_measurable.clear();
  }
  return study;
}

inline const StudyCell& cell_of_nodes(const Study& study, int nodes, bool killed) {
  for (const StudyCell& cell : study.cells) {
    const bool same_nodes = cell.settings[0].value == std::to_string(nodes);
    if (same_nodes && cell.settings[1].value == (killed ? "yes" : "no")) return cell;
  }
  return study.cells.at(0);
}

/// Makes a sample of a cell whose epochs took so long and whose best validation loss was that. Its
/// losses fall over the time; of a model of 45 MB a step of one node took 0.5 s.
inline Sample made_nodes(
    const Study& study, int nodes, int round, double epoch_seconds, double loss, bool killed) {
  const StudyCell& cell = cell_of_nodes(study, nodes, killed);
  Sample sample = testing::made_sample(study.name, cell, round, {});
  sample.places = nodes;
  sample.oversubscribed = nodes > 2;
  const double budget = std::stod(sample.settings.at("budget_seconds"));
  const double steps_an_epoch = 5.0 / nodes;
  sample.values = {{"learning_rate", 1e-4 * nodes}, {"global_batch", 32.0 * nodes},
      {"steps", steps_an_epoch * budget / epoch_seconds}, {"steps_an_epoch", steps_an_epoch},
      {"step_seconds", 0.5}, {"model_bytes", 45e6}, {kEpochSeconds, epoch_seconds},
      {kEpochs, budget / epoch_seconds}, {kBestValLoss, loss}, {"test_loss", loss + 0.1},
      {"test_accuracy", 0.25}};
  for (const int percent : curve_percents()) {
    const double left = 1.0 - percent / 100.0;
    sample.values[train_loss_name(percent)] = loss + left;
    if (percent >= 20) sample.values[val_loss_name(percent)] = loss + 1.2 * left;
  }
  if (killed) {
    sample.values["restarts"] = 1;
    sample.values["killed_after_seconds"] = budget / 2;
    sample.values["made_again_seconds"] = 0.75;
    sample.values["lost_seconds"] = 2.25;
  }
  sample.seconds = budget + 3;
  return sample;
}

/// Makes rounds of 1 and 2 nodes, one of 4, which are more than there are cores, and the one in
/// which a worker is killed.
inline std::vector<Sample> made_node_rounds(
    const Study& study, double epoch_of_two, double loss_of_two, int rounds = 2) {
  std::vector<Sample> samples;
  for (int round = 1; round <= rounds; ++round) {
    const double noise = 1 + 0.01 * round;
    samples.push_back(made_nodes(study, 1, round, 3 * noise, 2.5, false));
    samples.push_back(made_nodes(study, 2, round, epoch_of_two * noise, loss_of_two, false));
  }
  samples.push_back(made_nodes(study, 4, 1, 2.5, 2.4, false));
  samples.push_back(made_nodes(study, 2, 1, epoch_of_two, loss_of_two + 0.05, true));
  return samples;
}

}  // namespace lockstep::bench::scale_out
