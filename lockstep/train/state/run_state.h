#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/grad_scaler_state.h"
#include "lockstep/record/metrics.h"
#include "lockstep/record/summary.h"
#include "lockstep/train/optim/lr_schedule.h"
#include "lockstep/train/options/run_configuration.h"
#include "lockstep/train/state/epoch_position.h"

namespace lockstep {

/// The samples that a run trains on, so that a snapshot of other ones is noticed.
struct DataIdentity {
  std::string name;
  std::int64_t samples = 0;
  std::int64_t classes = 0;
  std::string fingerprint;  ///< of labels and of some images

  friend bool operator==(const DataIdentity&, const DataIdentity&) = default;
};

/// The facts settled before the first step: what is trained, and how it is spread.
struct RunSetup {
  std::string run = {};  ///< its id: random, of all its starts and copies
  std::int64_t seed = 0;
  int world_size = 1;
  int replicas = 1;
  int stages = 1;
  std::vector<int> balance = {};    ///< layers of each stage
  std::int64_t batches_a_step = 0;  ///< of all replicas together
  Configuration configuration = {};
  DataIdentity data = {};

  bool is_spread_as(const RunSetup& other) const {
    return world_size == other.world_size && replicas == other.replicas && stages == other.stages;
  }
};

/// Seconds since the beginning, without those of attempts that were lost.
struct RunSeconds {
  double elapsed = 0;   ///< of the run
  double training = 0;  ///< of them, what --max-time counts
  double epoch = 0;     ///< of the epoch under way
};

/// All of a run that is not a tensor. The trainer has one and works on it; a snapshot holds it as
/// state.json, and a run that is resumed begins with it.
struct RunState {
  RunSetup setup = {};
  std::int64_t step = 0;  ///< optimizer steps made
  EpochPosition position = {};
  std::int64_t schedule_step = 0;  ///< of the learning rate; follows from the position
  std::optional<nn::GradScalerState> scaler = {};
  PlateauState plateau = {};
  std::int64_t ema_updates = 0;
  std::int64_t skipped_steps = 0;
  RunSeconds seconds = {};
  int restarts = 0;  ///< starts before the one that wrote this
  std::optional<BestEpoch> best = {};
  std::string best_snapshot = {};         ///< its folder's name; empty: none
  std::vector<EpochSummary> epochs = {};  ///< that are over
  MeterReading epoch_total = {};          ///< of the epoch under way, up to the last log line
  /// The last lines of metrics, where the rank that writes them may have died before it did.
  std::vector<MetricRecord> last_lines = {};
};

/// Writes state.json: numbers read back as the same bits.
std::string to_json(const RunState& state);

/// Reads it. Throws DataError that names the file and the field for what is missing, of another
/// type, impossible, of another version, given twice, or nested or long beyond all reason; unknown
/// keys are ignored. So is what contradicts itself: counts that no training reaches, another number
/// of epochs than are listed, another `step` than the manifest's, if that is given.
RunState parse_run_state(std::string_view json, const std::string& file,
    std::optional<std::int64_t> step = std::nullopt);

}  // namespace lockstep
