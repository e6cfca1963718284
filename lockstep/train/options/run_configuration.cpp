#include "lockstep/train/options/run_configuration.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "lockstep/core/error.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

// As config.toml names them. The rest says where and how long to train and what to tell of it, or,
// as the file of --pretrained, decides the first step only.
constexpr std::array kDecisive = {
    "model"sv,
    "freeze"sv,
    "data"sv,
    "repeat"sv,
    "num-classes"sv,
    "augment"sv,
    "image-size"sv,
    "val-split"sv,
    "sync-batch-norm"sv,
    "deferred-batch-norm"sv,
    "batch-size"sv,
    "limit-train-batches"sv,
    "precision"sv,
    "opt"sv,
    "lr"sv,
    "momentum"sv,
    "weight-decay"sv,
    "weight-decay-on"sv,
    "lr-scale"sv,
    "sched"sv,
    "sched-on-updates"sv,
    "warmup-epochs"sv,
    "warmup-steps"sv,
    "warmup-lr"sv,
    "min-lr"sv,
    "decay-epochs"sv,
    "decay-milestones"sv,
    "decay-rate"sv,
    "poly-power"sv,
    "patience-epochs"sv,
    "cooldown-epochs"sv,
    "pct-start"sv,
    "div-factor"sv,
    "final-div-factor"sv,
    "clip-grad"sv,
    "grad-accum-steps"sv,
    "smoothing"sv,
    "model-ema"sv,
    "model-ema-decay"sv,
    "model-ema-warmup"sv,
    "eval-metric"sv,
    "seed"sv};

constexpr const char* kAbsent = "no value";

bool is_decisive(const std::string& flag) {
  return std::find(kDecisive.begin(), kDecisive.end(), flag) != kDecisive.end();
}

std::string value_in(const Configuration& configuration, const std::string& flag) {
  for (const auto& [name, value] : configuration)
    if (name == flag) return value;
  return kAbsent;
}

}  // namespace

Configuration run_configuration(const TrainOptions& options) {
  TrainOptions moved = options;
  moved.data.directory.clear();  // the same data may lie elsewhere
  std::istringstream lines(config_toml(moved));
  Configuration found;
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find(" = ");
    const std::string flag = line.substr(0, equals);
    if (is_decisive(flag)) found.emplace_back(flag, line.substr(equals + 3));
  }
  return found;
}

std::vector<std::string> differences(const Configuration& snapshot, const Configuration& now) {
  std::vector<std::string> found;
  const auto compare = [&](const std::string& flag) {
    const std::string before = value_in(snapshot, flag), today = value_in(now, flag);
    if (before != today)
      found.push_back(concat("--", flag, ": the snapshot has ", before, ", now ", today));
  };
  for (const auto& [flag, value] : now) compare(flag);
  for (const auto& [flag, value] : snapshot)
    if (value_in(now, flag) == kAbsent) compare(flag);
  return found;
}

}  // namespace lockstep
