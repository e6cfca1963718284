#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/core/stopwatch.h"
#include "lockstep/record/summary.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// A notice on stderr, about every ten seconds, of work that takes long; none of shorter work.
///
///     WaitingNotice notice;
///     notice.begin("evaluating");   // evaluating: 10.0 s so far
///     notice.end();
class WaitingNotice {
 public:
  explicit WaitingNotice(std::chrono::milliseconds interval = std::chrono::seconds(10));
  WaitingNotice(const WaitingNotice&) = delete;
  WaitingNotice& operator=(const WaitingNotice&) = delete;

  /// Begins to wait; what was waited for before is over.
  void begin(const std::string& what);
  void end() { begin(""); }

  /// Returns how many lines it has written.
  int lines() const;

 private:
  void watch(const std::stop_token& stop);
  void tell();

  std::chrono::milliseconds interval_;
  mutable std::mutex mutex_;
  std::string what_;  ///< empty: nothing
  Stopwatch since_;
  int lines_ = 0;
  std::jthread thread_;  // last: it uses the others
};

/// The point that a run has reached.
struct ProgressState {
  std::int64_t epoch = 1;
  std::optional<std::int64_t> epochs = {};
  std::int64_t step = 0;   ///< of this epoch
  std::int64_t steps = 1;  ///< of this epoch
  std::optional<double> loss = {};
  std::optional<double> samples_per_s = {};
  std::optional<double> tokens_per_s = {};  ///< shown in place of them
  std::optional<double> seconds_left = {};
};

/// Draws the state in one line of at most this many columns, with a bar as wide as the rest leaves.
std::string bar_text(const ProgressState& state, std::size_t columns);

/// Writes the state as one plain line.
std::string line_text(const ProgressState& state);

/// Writes what an epoch came to as one plain line.
std::string epoch_text(const EpochSummary& epoch, const std::optional<std::int64_t>& epochs);

/// The rest of a run after the steps of the epoch under way.
struct RestOfRun {
  /// Below 0 where the run ends within the epoch; nothing where time alone ends it.
  std::optional<std::int64_t> steps = 0;
  std::int64_t evaluations = 0;
  std::optional<double> seconds = {};  ///< of training, until its time is over
};

/// An estimate of how long a run will still take, from a moving mean of the step time and the last
/// evaluation's time.
class Eta {
 public:
  /// Takes in how long some steps took; recent steps weigh more.
  void add_steps(std::int64_t steps, double seconds);
  void add_evaluation(double seconds) { evaluation_seconds_ = seconds; }

  /// Returns the seconds that are left of a run with that many steps left of its epoch; nothing
  /// until a step was taken in, unless time alone ends the run.
  std::optional<double> seconds_left(std::int64_t steps_of_epoch, const RestOfRun& rest) const;

 private:
  double step_seconds_ = 0;
  double weight_ = 0;
  double evaluation_seconds_ = 0;
};

/// The point of a run at which an epoch begins, or goes on.
struct EpochBegin {
  std::int64_t epoch = 1;           ///< counted from 1
  std::int64_t steps_made = 0;      ///< of the run
  std::int64_t steps_left = 0;      ///< of the epoch
  std::int64_t steps_an_epoch = 1;  ///< of a whole one
  double seconds = 0;               ///< of training
};

/// Returns how long the run goes on: until the first of its limits.
RestOfRun rest_of_run(
    const TrainLimits& limits, const EpochBegin& begin, std::int64_t val_interval);

/// Decides what `auto` means here: a bar on a terminal that can redraw a line, else a line every
/// few seconds.
ProgressStyle resolved_style(ProgressStyle style, bool terminal, const std::string& term);

/// The reports on a training on stderr. Make it on rank 0; the other ranks' style is kNone.
class Progress {
 public:
  explicit Progress(ProgressStyle style);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Prints a line before the first epoch.
  void announce(const std::string& text) const;

  /// Prints a line that the user must see, in every style.
  static void say(const std::string& text);

  /// Prints what needs attention, on a line that stays; on every rank and in every style.
  void warn(const std::string& text);

  /// Begins an epoch of this many steps, of which some were made before the run was resumed.
  void begin_epoch(std::int64_t epoch, std::optional<std::int64_t> epochs, std::int64_t steps,
      std::int64_t made = 0);

  /// Lets a line appear every ten seconds, from here to evaluated() or the end of the epoch.
  void wait_for(const std::string& what);

  /// Sets how much training is left after this epoch's steps, for the remaining time.
  void set_rest(const RestOfRun& rest);

  /// Counts a step; draws only when it is time, so it may be called at every step.
  void step() {
    ++state_.step;
    if (state_.step == first_step_) end_waiting();
    if (style_ != ProgressStyle::kNone && since_drawn_.seconds() >= interval_) draw();
  }

  /// Takes in what was read last: the mean loss and speed of a log interval.
  void measured(const MetricRecord& line);
  void evaluated(double seconds) {
    end_waiting();
    eta_.add_evaluation(seconds);
  }

  /// Ends the epoch's bar with one line that stays.
  void end_epoch(const EpochSummary& summary);

  /// Ends what was drawn last, so that other output begins on a line of its own: the bar stays
  /// where an epoch was not finished.
  void end();

 private:
  void end_waiting() {
    if (notice_) notice_->end();
  }
  void draw();
  void erase();

  ProgressStyle style_;
  double interval_;
  ProgressState state_;
  Eta eta_;
  Stopwatch since_drawn_;
  std::int64_t drawn_step_ = 0;
  std::int64_t first_step_ = 1;  ///< that is made in this epoch
  RestOfRun rest_;
  Stopwatch since_rest_;  // was set
  bool on_screen_ = false;
  std::optional<WaitingNotice> notice_;
};

}  // namespace lockstep
