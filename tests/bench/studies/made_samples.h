#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/statistics/load_meter.h"
#include "bench/studies/collectives.h"
#include "bench/studies/data_parallel.h"
#include "bench/studies/ddp_scaling.h"
#include "bench/studies/pipeline.h"
#include "bench/studies/scale_out.h"
#include "bench/studies/throughput.h"
#include "bench/studies/ways.h"

namespace lockstep::bench::testing {

/// Makes a sample of a study's cell with these values.
inline Sample made_sample(const std::string& study, const StudyCell& cell, int round,
    std::map<std::string, double> values) {
  Sample sample{.study = study, .cell = cell.id, .round = round, .command = cell.command};
  sample.time = "2026-01-31T12:00:00.000Z";
  for (const Setting& setting : cell.settings) sample.settings[setting.name] = setting.value;
  sample.places = cell.places;
  sample.oversubscribed = oversubscribed(cell.places, cell.cores);
  sample.values = std::move(values);
  sample.seconds = 3;
  sample.calibration_seconds = 0.02;
  return sample;
}

/// Makes three rounds of the cells for which a number is known by their key; in each round it is a
/// percent more.
inline std::vector<Sample> made_rounds_of(const Study& study,
    const std::map<std::string, double>& numbers, std::string (*key_of)(const StudyCell&),
    Sample (*made)(const StudyCell&, int round, double number)) {
  std::vector<Sample> samples;
  for (int round = 1; round <= 3; ++round) {
    for (const StudyCell& cell : study.cells) {
      const auto found = numbers.find(key_of(cell));
      if (found == numbers.end()) continue;
      samples.push_back(made(cell, round, found->second * (1 + 0.01 * round)));
    }
  }
  return samples;
}

}  // namespace lockstep::bench::testing

namespace lockstep::bench::collectives {

/// Makes a sample of a cell of the study of collectives in which every call takes a latency and the
/// message at a rate, and a copy 0.1 ns a byte.
inline Sample made_sweep(
    const StudyCell& cell, int round, double latency_seconds, double bytes_per_second) {
  Sample sample = testing::made_sample("collectives", cell, round, {});
  const std::int64_t largest = std::stoll(sample.settings.at("largest"));
  for (const std::int64_t bytes : Point{.largest = largest}.sizes()) {
    const auto size = static_cast<double>(bytes);
    sample.values[seconds_value(bytes)] = latency_seconds + size / bytes_per_second;
    sample.values[copy_value(bytes)] = size / 1e10;
  }
  sample.values["smallest_microseconds"] = 1e6 * (latency_seconds + 1024 / bytes_per_second);
  sample.values["largest_milliseconds"] = 1e3 * static_cast<double>(largest) / bytes_per_second;
  return sample;
}

/// Makes three rounds of every cell: shm ten times as fast as Gloo, staged and threads between,
/// with a spread of some percent.
inline std::vector<Sample> made_sweeps(const Study& study) {
  std::vector<Sample> samples;
  for (const StudyCell& cell : study.cells) {
    const bool gloo = cell.id.find("gloo") != std::string::npos;
    const bool staged = cell.id.find("staged") != std::string::npos;
    const bool threads = cell.id.find("threads") != std::string::npos;
    const double slow = gloo ? 10 : staged ? 3 : threads ? 1.2 : 1;
    for (int round = 1; round <= 3; ++round) {
      const double noise = 1 + 0.02 * round;
      samples.push_back(made_sweep(cell, round, 5e-6 * slow * noise, 8e9 / slow / noise));
    }
  }
  return samples;
}

}  // namespace lockstep::bench::collectives

namespace lockstep::bench::data_parallel {

/// Makes a sample of the data-parallel study's cell with that second epoch; the first took a second
/// more.
inline Sample made_epochs(const std::string& model, int batch, int places, const std::string& way,
    int round, double seconds) {
  const Point point{.model = model, .batch = batch, .places = places, .way = way};
  Sample sample =
      testing::made_sample("data-parallel", cell_of(point, {.full = true, .cores = places}), round,
          {{kFirstEpoch, seconds + 1}, {kSecondEpoch, seconds}, {"epoch_share", 1},
              {"samples_per_s", 60000 / seconds}, {"train_loss", 0.25}, {"test_accuracy", 0.9}});
  sample.oversubscribed = false;
  return sample;
}

}  // namespace lockstep::bench::data_parallel

namespace lockstep::bench::ddp_scaling {

/// Returns the seconds of ten epochs by `NODES PLACES LAUNCHER`.
using ScalingSeconds = std::map<std::string, double>;

inline ScalingSeconds usual_scaling() {
  return {{"1 1 train", 1000}, {"1 2 run", 520}, {"1 2 torchrun", 525}, {"2 2 hosts", 700},
      {"2 4 hosts", 800}, {"2 4 hosts-torchrun", 880}};
}

/// Makes a study whose cells can all be measured, whatever this machine has.
inline Study made_scaling_study(int cores) {
  Study study = make_study({.full = true, .cores = cores});
  for (StudyCell& cell : study.cells) cell.not_measurable.clear();
  return study;
}

inline std::string scaling_key(const StudyCell& cell) {
  return concat(
      cell.settings.at(0).value, " ", cell.settings.at(1).value, " ", cell.settings.at(2).value);
}

inline Sample made_scaling_sample(const StudyCell& cell, int round, double seconds) {
  Sample sample = testing::made_sample("ddp-scaling", cell, round,
      {{"run_seconds", seconds}, {"first_epoch_seconds", seconds / 10 + 1},
          {"epoch_seconds", seconds / 10}, {"epoch_share", 1}, {"trained_seconds", seconds},
          {"samples_per_s", 500000 / seconds}, {"train_loss", 4.2},
          {"evaluation_seconds", seconds / 100}, {"evaluated_images", 10000},
          {"checkpoint_seconds", 0.25}, {"between_seconds", seconds / 10 + 2.5},
          {"whole_seconds", 1.1 * seconds + 2.5}});
  sample.seconds = 1.1 * seconds + 2.5 + 3;
  return sample;
}

/// Makes three rounds of the cells that have seconds; those of a round differ by a common factor.
inline std::vector<Sample> made_scaling_rounds(const Study& study, const ScalingSeconds& seconds) {
  return testing::made_rounds_of(study, seconds, scaling_key, made_scaling_sample);
}

}  // namespace lockstep::bench::ddp_scaling

namespace lockstep::bench::pipeline {

/// Makes a sample of a pipeline's cell: two repeats of those seconds, one a tenth shorter, one a
/// tenth longer.
inline Sample made_run(const StudyCell& cell, int round, double seconds, double mebibytes) {
  Sample sample = testing::made_sample("pipeline", cell, round,
      {{"run_seconds", seconds}, {"run_variance", 0.01 * seconds * seconds}, {"repeats", 2},
          {"peak_memory_bytes", mebibytes * (1 << 20)}});
  sample.oversubscribed = false;
  return sample;
}

/// Makes rounds of all cells; the seconds of a way are those given, or 6, and a percent more in
/// each round; and longer by what a bubble of gpipe costs, and by small micro-batches.
inline std::vector<Sample> made_runs(
    const Study& study, int rounds, const std::map<std::string, double>& seconds) {
  std::vector<Sample> samples;
  for (int round = 1; round <= rounds; ++round) {
    for (const StudyCell& cell : study.cells) {
      const std::string way = cell.settings.at(0).value;
      const double batch = std::stod(cell.settings.at(1).value);
      const double split = std::stod(cell.settings.at(2).value);
      const double base = seconds.contains(way) ? seconds.at(way) : 6;
      const double bubble = split < batch ? 1 + split / batch : 1;
      const double cost = cell.places > 1 ? bubble * (1 + 0.4 / split) : 1;
      const double memory = way == "1f1b" ? 700 : way == "gpipe" ? 1000 : 900;
      samples.push_back(made_run(cell, round, base * cost * (1 + 0.01 * round), memory));
    }
  }
  return samples;
}

}  // namespace lockstep::bench::pipeline

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

namespace lockstep::bench::throughput {

/// Makes a sample of a cell that took this many seconds for an image.
inline Sample made_step_sample(const StudyCell& cell, int round, double seconds) {
  return testing::made_sample("throughput", cell, round,
      {{"seconds_a_sample", seconds}, {"samples_per_s", 1 / seconds},
          {"first_step_seconds", 9 * seconds}, {"timed_steps", 3}, {"data_share", 0.01},
          {"skipped_steps", cell.id.find("-16-") != std::string::npos ? 2 : 0}});
}

/// The seconds for an image in the cells of the quick grid on two cores, by their ids.
using SecondsByCell = std::map<std::string, double>;

inline SecondsByCell usual_seconds() {
  return {{"serial-p1-b2-224px-32-s4", 0.4}, {"dp-p2-b2-224px-32-s4", 0.25},
      {"dp-p2-b8-224px-32-s4", 0.22}, {"ddp-p2-b2-224px-32-s4", 0.24},
      {"ddp-p2-b8-224px-32-s4", 0.2}, {"dp-p2-b8-224px-bf16-mixed-s4", 0.44},
      {"dp-p2-b4-32px-32-s4", 0.01}, {"dp-p2-b4-32px-16-mixed-s4", 0.5}};
}

/// Makes three rounds of the cells that have a number.
inline std::vector<Sample> made_rounds(const Study& study, const SecondsByCell& seconds) {
  return testing::made_rounds_of(
      study, seconds, [](const StudyCell& cell) { return cell.id; }, made_step_sample);
}

}  // namespace lockstep::bench::throughput

namespace lockstep::bench::testing {

/// Images a second of a cell in each of its rounds.
using RatesByCell = std::map<std::string, std::vector<double>>;

/// Makes samples with these rates, in which a tenth of the time was waiting for data and, of ddp, a
/// fifth for other ranks.
inline std::vector<Sample> made_rates(const Study& study, const RatesByCell& rates) {
  std::vector<Sample> samples;
  for (const StudyCell& cell : study.cells) {
    const auto found = rates.find(cell.id);
    if (found == rates.end()) continue;
    for (std::size_t round = 0; round < found->second.size(); ++round) {
      std::map<std::string, double> values{{ways::kRate, found->second[round]},
          {ways::kDataShare, 0.02}, {ways::kPeakMemory, 300 << 20}};
      if (cell.id.starts_with("ddp")) values[ways::kCommShare] = 0.2;
      samples.push_back(made_sample(study.name, cell, static_cast<int>(round) + 1, values));
    }
  }
  return samples;
}

}  // namespace lockstep::bench::testing
