#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/train/optim/lr_plateau.h"
#include "lockstep/train/options/eval_metric.h"
#include "lockstep/train/options/run_configuration.h"
#include "lockstep/train/record/meter_reading.h"
#include "lockstep/train/record/summary.h"
#include "lockstep/train/state/epoch_position.h"

namespace lockstep {

/// Says which samples a run trains on, so that a snapshot of other ones is noticed.
struct DataIdentity {
  std::string name;
  std::int64_t samples = 0;
  std::int64_t classes = 0;
  std::string fingerprint;  ///< of labels and of some images

  friend bool operator==(const DataIdentity&, const DataIdentity&) = default;
};

/// Is what a GradScaler goes on from.
struct ScalerRecord {
  double scale = 0;
  double growth_factor = 0;
  double backoff_factor = 0;
  std::int64_t growth_interval = 0;
  std::int64_t growth_tracker = 0;

  friend bool operator==(const ScalerRecord&, const ScalerRecord&) = default;
};

/// Is all of a run that is no tensor: state.json of a snapshot.
struct RunState {
  std::int64_t step = 0;  ///< optimizer steps made
  EpochPosition position = {};
  std::int64_t schedule_step = 0;  ///< of the learning rate; follows from the position
  std::int64_t seed = 0;
  int world_size = 1;
  int replicas = 1;
  int stages = 1;
  std::vector<int> balance = {};  ///< layers of each stage
  Configuration configuration = {};
  DataIdentity data = {};
  std::optional<ScalerRecord> scaler = {};
  PlateauState plateau = {};
  std::int64_t ema_updates = 0;
  std::int64_t skipped_steps = 0;
  double elapsed = 0;           ///< seconds since the run began, lost lives left out
  double training_seconds = 0;  ///< of them, what --max-time counts
  double epoch_seconds = 0;     ///< of the epoch under way
  int restarts = 0;             ///< lives before the one that wrote this
  std::optional<BestEpoch> best = {};
  std::string best_snapshot = {};         ///< its folder's name; empty: none
  std::vector<EpochSummary> epochs = {};  ///< that are over
  MeterReading epoch_total = {};          ///< of the epoch under way, up to the last log line
};

/// Writes state.json: numbers read back as the same bits.
std::string to_json(const RunState& state);

/// Reads it. Throws DataError that names the file and the field for what is missing, of another
/// type, impossible, of another version, given twice, or nested or long beyond all reason; keys
/// that it does not know are let be.
RunState parse_run_state(std::string_view json, const std::string& file);

}  // namespace lockstep
