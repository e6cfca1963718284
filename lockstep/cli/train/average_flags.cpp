#include "lockstep/cli/train/average_flags.h"

#include <CLI/CLI.hpp>

#include "lockstep/cli/flags/choose.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {

void add_average_flags(CLI::App& app, AverageTexts& texts) {
  const char* group = "Averaged and best weights";
  app.add_flag(
         "--model-ema", texts.ema, "keep a moving average of the weights, and evaluate it too")
      ->group(group);
  app.add_option("--model-ema-decay", texts.decay)
      ->type_name("X")
      ->description("share of the average that a step keeps [0.9998]")
      ->group(group);
  app.add_flag(
         "--model-ema-warmup", texts.warmup, "begin with a small decay, which grows up to that one")
      ->group(group);
  app.add_option("--eval-metric", texts.eval_metric)
      ->type_name("NAME")
      ->description("that says which epoch is the best: loss, top1, top5 [loss]")
      ->group(group);
}

std::optional<EmaSettings> ema_of(const AverageTexts& texts) {
  check(
      texts.ema || (!texts.decay && !texts.warmup), "train: --model-ema-",
      texts.decay ? "decay" : "warmup", " needs --model-ema");
  if (!texts.ema) return std::nullopt;
  EmaSettings settings{.warmup = texts.warmup};
  settings.decay = texts.decay.value_or(settings.decay);
  return settings;
}

EvalMetric eval_metric_of(const AverageTexts& texts) {
  return choose(
      "--eval-metric", texts.eval_metric,
      {EvalMetric::kLoss, EvalMetric::kTop1, EvalMetric::kTop5});
}

}  // namespace lockstep::cli
