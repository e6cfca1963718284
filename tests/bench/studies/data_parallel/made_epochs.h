#pragma once

#include <string>

#include "tests/bench/studies/made_sample.h"

#include "bench/studies/data_parallel/study.h"

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
