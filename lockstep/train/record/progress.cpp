#include "lockstep/train/record/progress.h"

#include <cstdio>

#include <sys/ioctl.h>
#include <unistd.h>

#include "lockstep/core/environment.h"

namespace lockstep {
namespace {

constexpr double kBarSeconds = 0.1;
constexpr double kLineSeconds = 5;

std::size_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

ProgressStyle resolved_style(ProgressStyle style, bool terminal, const std::string& term) {
  if (style != ProgressStyle::kAuto) return style;
  return terminal && !term.empty() && term != "dumb" ? ProgressStyle::kBar : ProgressStyle::kLine;
}

Progress::Progress(ProgressStyle style)
    : style_(resolved_style(style, ::isatty(STDERR_FILENO) == 1, environment("TERM").value_or(""))),
      interval_(style_ == ProgressStyle::kBar ? kBarSeconds : kLineSeconds) {}

Progress::~Progress() { erase(); }

void Progress::announce(const std::string& text) const {
  if (style_ != ProgressStyle::kNone) std::fprintf(stderr, "%s\n", text.c_str());
}

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
  since_drawn_.restart();
}

void Progress::set_later(std::int64_t steps, std::int64_t evaluations) {
  later_steps_ = steps;
  later_evaluations_ = evaluations;
}

void Progress::measured(double loss, double samples_per_s) {
  state_.loss = loss;
  state_.samples_per_s = samples_per_s;
}

void Progress::draw() {
  eta_.add_steps(state_.step - drawn_step_, since_drawn_.restart());
  drawn_step_ = state_.step;
  state_.seconds_left =
      eta_.seconds_left(state_.steps - state_.step + later_steps_, later_evaluations_);
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

void Progress::end_epoch(const EpochSummary& summary) {
  erase();
  if (style_ == ProgressStyle::kNone) return;
  std::fprintf(stderr, "%s\n", epoch_text(summary, state_.epochs).c_str());
}

}  // namespace lockstep
