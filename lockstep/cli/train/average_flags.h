#pragma once

#include <optional>
#include <string>

#include <CLI/App.hpp>

#include "lockstep/train/options/ema_settings.h"
#include "lockstep/train/options/eval_metric.h"

namespace lockstep::cli {

/// Is what the flags about averaged and best weights say.
struct AverageTexts {
  bool ema = false, warmup = false;
  std::optional<double> decay;
  std::string eval_metric = "loss";
};

/// Declares the flags.
void add_average_flags(CLI::App& app, AverageTexts& texts);

/// Reads what they say: nothing when no average is asked for. Throws InvalidArgument for a flag
/// that needs --model-ema.
std::optional<EmaSettings> ema_of(const AverageTexts& texts);

/// Throws InvalidArgument for a word that it does not know.
EvalMetric eval_metric_of(const AverageTexts& texts);

}  // namespace lockstep::cli
