#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/process/command.h"

namespace lockstep::testing {

/// A way of spreading a model, as a parameter of tests.
struct TrainWay {
  std::string name;
  std::string flags;
};

/// The files that a run of `lockstep train` left.
struct TrainedRun {
  Ended ended;
  std::vector<nlohmann::json> records;  ///< the lines of metrics.jsonl
  nlohmann::json summary;
  // Bytes of the tensors in best, model and model-ema.safetensors, by their names.
  std::map<std::string, std::string> best, last, last_ema;

  /// Returns a field of all records of a split, in order.
  std::vector<double> values(const std::string& split, const std::string& field) const;

  /// Returns the losses of all steps.
  std::vector<double> losses() const { return values("train", "loss"); }
};

/// Runs `lockstep train FLAGS --output FOLDER` to its end, every step in metrics.jsonl; throws, and
/// so ends the test, unless that is a good one.
TrainedRun trained_run(const std::string& flags);

/// Expects that many values, the same ones up to rounding.
void expect_near(
    const std::vector<double>& values, const std::vector<double>& expected, std::size_t count);

/// Parses the lines of a file of JSON.
std::vector<nlohmann::json> json_lines(const std::string& path);

}  // namespace lockstep::testing
