#include "lockstep/train/record/progress_text.h"

#include <algorithm>
#include <cstdio>

#include "lockstep/train/options/duration.h"

namespace lockstep {
namespace {

std::string printed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string epoch_name(std::int64_t epoch, const std::optional<std::int64_t>& epochs) {
  const std::string name = "epoch " + std::to_string(epoch);
  return epochs ? name + "/" + std::to_string(*epochs) : name;
}

double share(const ProgressState& state) {
  const auto steps = std::max<std::int64_t>(state.steps, 1);
  return std::clamp(static_cast<double>(state.step) / static_cast<double>(steps), 0.0, 1.0);
}

std::string figures(const ProgressState& state) {
  std::string text = std::to_string(state.step) + "/" + std::to_string(state.steps);
  if (state.loss) text += printed("  loss %.4f", *state.loss);
  if (state.samples_per_s) text += printed("  %.0f samples/s", *state.samples_per_s);
  if (state.seconds_left) text += "  " + format_duration(*state.seconds_left) + " left";
  return text;
}

}  // namespace

std::string bar_text(const ProgressState& state, std::size_t columns) {
  const std::string before = epoch_name(state.epoch, state.epochs) + " ";
  const std::string after = printed(" %3.0f%%  ", 100 * share(state)) + figures(state);
  const std::size_t taken = before.size() + after.size() + 2;
  constexpr std::size_t kShortest = 5, kLongest = 40;
  if (taken + kShortest > columns) return (before + after).substr(0, columns);
  const std::size_t width = std::min(columns - taken, kLongest);
  const auto filled = static_cast<std::size_t>(share(state) * static_cast<double>(width));
  return before + "[" + std::string(filled, '#') + std::string(width - filled, '.') + "]" + after;
}

std::string line_text(const ProgressState& state) {
  return epoch_name(state.epoch, state.epochs) + "  step " + figures(state);
}

std::string epoch_text(const EpochSummary& epoch, const std::optional<std::int64_t>& epochs) {
  std::string text =
      epoch_name(epoch.epoch, epochs) + "  " + printed("%.2f s", epoch.train_seconds) +
      printed("  %.0f samples/s", epoch.samples_per_s) + printed("  loss %.4f", epoch.train_loss);
  const std::string set = epoch.validated ? "  val" : "  test";
  if (epoch.val_loss) text += set + printed(" loss %.4f", *epoch.val_loss);
  if (epoch.val_accuracy) text += set + printed(" accuracy %.4f", *epoch.val_accuracy);
  if (epoch.val_accuracy5) text += printed("  top-5 %.4f", *epoch.val_accuracy5);
  if (epoch.ema_loss) text += printed("  EMA loss %.4f", *epoch.ema_loss);
  if (epoch.ema_accuracy) text += printed("  EMA accuracy %.4f", *epoch.ema_accuracy);
  return text;
}

}  // namespace lockstep
