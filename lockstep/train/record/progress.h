#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/core/stopwatch.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/record/eta.h"
#include "lockstep/train/record/progress_text.h"

namespace lockstep {

/// Decides what `auto` means here: a bar on a terminal that can redraw a line, else a line every
/// few seconds.
ProgressStyle resolved_style(ProgressStyle style, bool terminal, const std::string& term);

/// Tells a person on stderr how training goes. Make it on rank 0; the other ranks' style is kNone.
class Progress {
 public:
  explicit Progress(ProgressStyle style);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Says one line before the first epoch.
  void announce(const std::string& text) const;

  /// Says something that needs attention, on a line that stays; on every rank and in every style.
  void warn(const std::string& text);

  /// Begins an epoch of so many steps, of which some were made in an earlier life.
  void begin_epoch(
      std::int64_t epoch, std::optional<std::int64_t> epochs, std::int64_t steps,
      std::int64_t made = 0);

  /// Says how much training is left after this epoch's steps, for the remaining time.
  void set_later(std::int64_t steps, std::int64_t evaluations);

  /// Counts a step; draws only when it is time, so it may be called at every step.
  void step() {
    ++state_.step;
    if (style_ != ProgressStyle::kNone && since_drawn_.seconds() >= interval_) draw();
  }

  /// Takes in what was read last: the mean loss and speed of a log interval.
  void measured(double loss, double samples_per_s);
  void evaluated(double seconds) { eta_.add_evaluation(seconds); }

  /// Ends the epoch's bar with one line that stays.
  void end_epoch(const EpochSummary& summary);

 private:
  void draw();
  void erase();

  ProgressStyle style_;
  double interval_;
  ProgressState state_;
  Eta eta_;
  Stopwatch since_drawn_;
  std::int64_t drawn_step_ = 0;
  std::int64_t later_steps_ = 0;
  std::int64_t later_evaluations_ = 0;
  bool on_screen_ = false;
};

}  // namespace lockstep
