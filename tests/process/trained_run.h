#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/process/train_command.h"

namespace lockstep::testing {

/// Is what a run of `lockstep train` left.
struct TrainedRun {
  Ended ended;
  std::vector<nlohmann::json> records;  ///< the lines of metrics.jsonl
  nlohmann::json summary;
  // Bytes of the tensors in best, model and model-ema.safetensors, by their names.
  std::map<std::string, std::string> best, last, last_ema;

  /// Gives a field of all records of a split, in order.
  std::vector<double> values(const std::string& split, const std::string& field) const;

  /// Gives the losses of all steps.
  std::vector<double> losses() const { return values("train", "loss"); }
};

/// Runs `lockstep train ARGUMENTS --output FOLDER` to its end, every step in metrics.jsonl.
TrainedRun trained_run(const std::vector<std::string>& arguments);

}  // namespace lockstep::testing
