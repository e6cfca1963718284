#pragma once

#include <string>

#include "lockstep/bench/experiment/sample.h"

namespace lockstep::bench::testing {

/// Makes a sample of the data-parallel study's cell with that second epoch; the first took a second
/// more.
inline Sample made_sample(
    const std::string& model, int batch, int places, const std::string& way, int round,
    double seconds) {
  Sample sample;
  sample.study = "data-parallel";
  sample.cell = model + "-r1-b" + std::to_string(batch) + "-p" + std::to_string(places) +
                (places > 1 ? "-" + way : "");
  sample.round = round;
  sample.time = "2026-01-31T12:00:00.000Z";
  sample.settings = {
      {"model", model},
      {"repeat", "1"},
      {"batch", std::to_string(batch)},
      {"places", std::to_string(places)},
      {"way", way}};
  sample.places = places;
  sample.values = {
      {"first_epoch_seconds", seconds + 1},
      {"second_epoch_seconds", seconds},
      {"epoch_share", 1},
      {"samples_per_s", 60000 / seconds},
      {"train_loss", 0.25},
      {"test_accuracy", 0.9}};
  sample.seconds = 2 * seconds + 2;
  sample.calibration_seconds = 0.02;
  return sample;
}

}  // namespace lockstep::bench::testing
