#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/App.hpp>

#include "lockstep/cli/train/average_flags.h"
#include "lockstep/cli/train/loading_flags.h"
#include "lockstep/cli/train/optimizer_flags.h"
#include "lockstep/cli/train/snapshot_flags.h"
#include "lockstep/cli/train/train_flags.h"

namespace lockstep::cli {

/// Is what the flags say, as text where only our own reader knows the words.
struct FlagTexts {
  std::string data = "fashion-mnist";
  std::string log_dir, grace_period, max_restarts;
  bool no_pin = false;
  std::optional<std::string> freeze, parallel, schedule, max_time, nproc_per_node;
  std::string precision = "32", progress = "auto", balance = "time", checkpoint = "never";
  LoadingTexts loading;
  OptimizerTexts optimizer;
  AverageTexts averages;
  SnapshotTexts snapshots;
  PipelineSettings pipeline;  // but for the words above
  std::optional<std::int64_t> epochs, max_steps;
};

/// Declares every flag of `lockstep train`; what needs no reading of ours goes straight into the
/// command.
void add_train_flags(CLI::App& app, FlagTexts& texts, TrainCommand& command);

}  // namespace lockstep::cli
