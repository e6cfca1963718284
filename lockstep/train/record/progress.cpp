#include "lockstep/train/record/progress.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <sys/ioctl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/core/environment.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr double kBarSeconds = 0.1;
constexpr double kLineSeconds = 5;

std::size_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

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

std::string scores_text(const std::string& set, const Scores& scores) {
  std::string text;
  for (const ScoreName& score : kScores)
    if (const auto& value = scores.*score.value)
      text += "  " + set + " " + score.title + printed(" %.4f", *value);
  for (const auto& [name, value] : scores.more)
    text += "  " + set + " " + printable_path(name) + printed(" %.4f", value);
  return text;
}

std::string speed_text(
    const std::optional<double>& samples_per_s, const std::optional<double>& tokens_per_s) {
  if (tokens_per_s) return printed("  %.0f tokens/s", *tokens_per_s);
  return samples_per_s ? printed("  %.0f samples/s", *samples_per_s) : "";
}

std::string figures(const ProgressState& state) {
  std::string text = std::to_string(state.step) + "/" + std::to_string(state.steps);
  if (state.loss) text += printed("  loss %.4f", *state.loss);
  text += speed_text(state.samples_per_s, state.tokens_per_s);
  if (state.seconds_left) text += "  " + format_duration(*state.seconds_left) + " left";
  return text;
}

// About the last 200 steps count.
constexpr double kRemembered = 0.995;

}  // namespace

WaitingNotice::WaitingNotice(std::chrono::milliseconds interval) : interval_(interval) {
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  } catch (const std::system_error&) {
    // Where no thread can be had, what waits is worth more than the talk about it.
  }
}

void WaitingNotice::begin(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  since_.restart();
}

int WaitingNotice::lines() const {
  const std::lock_guard lock(mutex_);
  return lines_;
}

void WaitingNotice::watch(const std::stop_token& stop) {
  std::condition_variable_any never;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    never.wait_for(lock, stop, interval_, [] { return false; });
    if (!stop.stop_requested()) tell();
  }
}

void WaitingNotice::tell() {
  const double seconds = since_.seconds();
  if (what_.empty() || seconds < std::chrono::duration<double>(interval_).count()) return;
  std::fprintf(stderr, "%s: %s so far\n", what_.c_str(), format_duration(seconds).c_str());
  ++lines_;
}

ProgressStyle resolved_style(ProgressStyle style, bool terminal, const std::string& term) {
  if (style != ProgressStyle::kAuto) return style;
  return terminal && !term.empty() && term != "dumb" ? ProgressStyle::kBar : ProgressStyle::kLine;
}

Progress::Progress(ProgressStyle style)
    : style_(resolved_style(style, ::isatty(STDERR_FILENO) == 1, system_variable("TERM"))),
      interval_(style_ == ProgressStyle::kBar ? kBarSeconds : kLineSeconds) {
  if (style_ != ProgressStyle::kNone) notice_.emplace();
}

Progress::~Progress() { erase(); }

void Progress::announce(const std::string& text) const {
  if (style_ != ProgressStyle::kNone) say(text);
}

void Progress::say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

void Progress::warn(const std::string& text) {
  erase();
  std::fprintf(stderr, "lockstep: warning: %s\n", text.c_str());
}

void Progress::begin_epoch(
    std::int64_t epoch, std::optional<std::int64_t> epochs, std::int64_t steps, std::int64_t made) {
  state_.epoch = epoch;
  state_.epochs = epochs;
  state_.step = made;
  state_.steps = steps;
  drawn_step_ = made;
  first_step_ = made + 1;
  since_drawn_.restart();
  wait_for("lockstep: in the first step of the epoch");
}

void Progress::wait_for(const std::string& what) {
  erase();
  if (notice_) notice_->begin(what);
}

void Progress::set_rest(const RestOfRun& rest) {
  rest_ = rest;
  since_rest_.restart();
}

void Progress::measured(const MetricRecord& line) {
  state_.loss = line.scores.loss;
  state_.samples_per_s = line.samples_per_s;
  state_.tokens_per_s = line.tokens_per_s;
}

void Progress::draw() {
  eta_.add_steps(state_.step - drawn_step_, since_drawn_.restart());
  drawn_step_ = state_.step;
  RestOfRun rest = rest_;
  if (rest.seconds) rest.seconds = std::max(0.0, *rest.seconds - since_rest_.seconds());
  state_.seconds_left = eta_.seconds_left(state_.steps - state_.step, rest);
  if (style_ == ProgressStyle::kBar) {
    // One column stays free: a terminal that wraps at the last one would scroll.
    std::fprintf(stderr, "\r%s\x1b[K", bar_text(state_, terminal_columns() - 1).c_str());
    on_screen_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line_text(state_).c_str());
  }
  std::fflush(stderr);
}

void Progress::erase() {
  if (!on_screen_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  on_screen_ = false;
}

void Progress::end() {
  end_waiting();
  if (std::exchange(on_screen_, false)) std::fputs("\n", stderr);
}

void Progress::end_epoch(const EpochSummary& summary) {
  end_waiting();
  erase();
  if (style_ == ProgressStyle::kNone) return;
  std::fprintf(stderr, "%s\n", epoch_text(summary, state_.epochs).c_str());
}

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
  return epoch_name(epoch.epoch, epochs) + "  " + printed("%.2f s", epoch.train_seconds) +
         speed_text(epoch.samples_per_s, epoch.tokens_per_s) +
         printed("  loss %.4f", epoch.train_loss) +
         scores_text(epoch.validated ? "val" : "test", epoch.val) + scores_text("EMA", epoch.ema);
}

void Eta::add_steps(std::int64_t steps, double seconds) {
  if (steps <= 0) return;
  const double keep = std::pow(kRemembered, static_cast<double>(steps));
  const double mean = seconds / static_cast<double>(steps);
  // Starting from weight zero makes the first steps count in full, not mixed with a zero.
  step_seconds_ =
      (step_seconds_ * weight_ * keep + mean * (1 - keep)) / (weight_ * keep + 1 - keep);
  weight_ = weight_ * keep + 1 - keep;
}

std::optional<double> Eta::seconds_left(std::int64_t steps_of_epoch, const RestOfRun& rest) const {
  if (!rest.steps) return rest.seconds;
  if (weight_ == 0) return std::nullopt;
  const auto steps = std::max<std::int64_t>(steps_of_epoch + *rest.steps, 0);
  const double left = static_cast<double>(steps) * step_seconds_ +
                      static_cast<double>(rest.evaluations) * evaluation_seconds_;
  return rest.seconds ? std::min(left, *rest.seconds) : left;
}

RestOfRun rest_of_run(
    const TrainLimits& limits, const EpochBegin& begin, std::int64_t val_interval) {
  RestOfRun rest{.steps = {}};
  if (limits.epochs) rest.steps = (*limits.epochs - begin.epoch) * begin.steps_an_epoch;
  if (limits.steps) {
    const std::int64_t later = *limits.steps - begin.steps_made - begin.steps_left;
    rest.steps = std::min(rest.steps.value_or(later), later);
  }
  if (limits.seconds) rest.seconds = *limits.seconds - begin.seconds;
  const std::int64_t later = std::max<std::int64_t>(rest.steps.value_or(0), 0);
  const std::int64_t epochs = (later + begin.steps_an_epoch - 1) / begin.steps_an_epoch;
  rest.evaluations = (val_interval < 0 ? 0 : 1) + (val_interval > 0 ? epochs : 0);
  return rest;
}

}  // namespace lockstep
