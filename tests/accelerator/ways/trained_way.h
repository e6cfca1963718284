#pragma once

#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/accelerator/emulated_nccl.h"
#include "tests/accelerator/runtime.h"

#include "lockstep/train/strategy/devices.h"
#include "lockstep/train/trainer.h"

namespace lockstep::emulated {

/// A way of training on devices, in threads of one process.
struct TrainedWay {
  const char* name;
  Parallel parallel = Parallel::kSerial;
  int ranks = 1;   ///< threads
  int places = 1;  ///< of each
  bool nccl = false;
  Precision precision = Precision::k32;
};

inline std::ostream& operator<<(std::ostream& out, const TrainedWay& way) {
  return out << way.name;
}

inline TrainOptions run_options(
    const TrainedWay& way, const std::string& model, const std::string& output) {
  TrainOptions options;
  options.model = model;
  options.data.name = "mock";
  options.parallel = way.parallel;
  if (way.places > 1) options.places = way.places * (way.ranks > 1 ? way.ranks : 1);
  if (way.parallel != Parallel::kDp && way.parallel != Parallel::kDdp &&
      way.parallel != Parallel::kSerial)
    options.pipeline.balance = Balance::kCount;
  options.batch_size = 16 / (way.parallel == Parallel::kDp ? way.places : 1);
  options.precision = way.precision;
  options.limit_train_batches = 6;
  options.limits = {.epochs = 2};
  options.log_interval = 2;
  options.progress = ProgressStyle::kNone;
  options.snapshots = {.unit = SnapshotUnit::kSteps, .count = 4};
  options.output = output;
  return options;
}

inline std::vector<Place> run_places(const TrainedWay& way, torch::DeviceType type, int rank) {
  std::vector<Place> places(static_cast<std::size_t>(way.places));
  if (type == torch::kCPU) return places;
  for (int place = 0; place < way.places; ++place)
    places[static_cast<std::size_t>(place)].device = {
        type, static_cast<c10::DeviceIndex>(rank * way.places + place)};
  return places;
}

/// Trains on devices of a type. `waits` are those of the ranks' own threads for devices.
inline RunSummary train_on(torch::DeviceType type, const TrainedWay& way,
    const TrainOptions& options, std::atomic<std::int64_t>* waits = nullptr) {
  install();
  std::optional<UseEmulatedNccl> nccl;
  if (way.nccl) nccl.emplace();
  RunSummary first;
  run_ranks(way.ranks, [&](const ProcessGroup& world) {
    const auto places = run_places(way, type, world.rank());
    Trainer trainer(options, world.with_devices(devices_of(places)), {"test"}, places);
    const RunSummary summary = trainer.run();
    if (waits != nullptr) *waits += Runtime::waits_of_this_thread();
    if (world.rank() == 0) first = summary;
  });
  return first;
}

inline std::string name_of_way(const ::testing::TestParamInfo<TrainedWay>& way) {
  return way.param.name;
}

}  // namespace lockstep::emulated
