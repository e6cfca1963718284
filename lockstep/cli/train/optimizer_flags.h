#pragma once

#include <optional>
#include <string>

#include <CLI/App.hpp>

#include "lockstep/train/options/optimizer_settings.h"

namespace lockstep::cli {

/// Is what the flags about optimizer and learning rate say, as text where only our own reader knows
/// the words.
struct OptimizerTexts {
  std::string opt = "adam", lr_scale = "none", sched = "constant", weight_decay_on = "all",
              decay_milestones;
  std::optional<double> lr, momentum, weight_decay, clip_grad;
  bool shard_optimizer = false;
  LrSettings schedule;  // but for the words above
};

/// Declares the flags.
void add_optimizer_flags(CLI::App& app, OptimizerTexts& texts);

/// Reads what they say. Throws InvalidArgument for a word or a list that it does not know.
OptimizerSettings optimizer_of(const OptimizerTexts& texts);

}  // namespace lockstep::cli
