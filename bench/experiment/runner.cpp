#include "bench/experiment/runner.h"

#include <algorithm>
#include <iostream>
#include <signal.h>
#include <system_error>

#include "bench/experiment/sample.h"
#include "bench/experiment/sample_process.h"
#include "bench/experiment/study.h"
#include "bench/experiment/turns.h"
#include "bench/statistics/load_meter.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/record/metrics.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

/// Refuses to put samples of other work beside those that the log has.
void check_goes_on(const Study& study, const SampleLog& log, const fs::path& path) {
  for (const Sample& sample : log.samples()) {
    if (sample.study != study.name || !sample.not_measurable.empty()) continue;
    const auto cell = std::ranges::find_if(
        study.cells, [&](const StudyCell& each) { return each.id == sample.cell; });
    const char* const what = cell == study.cells.end() ? ", which is not measured now"
                             : noted_command(*cell) != sample.command ? ", made by another command"
                                                                      : nullptr;
    check(what == nullptr, "bench: ", path.string(), " holds samples of ", study.name, "'s cell ",
        sample.cell, what == nullptr ? "" : what,
        "; continue with the original flags, or use another --output");
  }
}

/// Says what is known of a sample before it is taken.
Sample blank_sample(const Study& study, const StudyCell& cell, int round, int cores) {
  const int own = cell.cores == 0 ? cores : std::min(cores, cell.cores);
  Sample sample{.study = study.name,
      .cell = cell.id,
      .round = round,
      .time = utc_now(),
      .command = noted_command(cell),
      .places = cell.places,
      .oversubscribed = cell.on_cores && oversubscribed(cell.places, own),
      .not_measurable = cell.not_measurable};
  for (const Setting& setting : cell.settings) sample.settings[setting.name] = setting.value;
  return sample;
}

/// The measuring of what is missing of one study.
class Runner {
 public:
  Runner(const Study& study, const RunnerOptions& options)
      : study_(study),
        options_(options),
        program_(launch::find_program(options.program, system_variable("PATH"))),
        runs_(options.output / "runs" / study.name),
        log_(log_path()) {
    check_goes_on(study, log_, log_path());
    fs::create_directories(runs_);
    if (!log_.torn().empty()) say(log_.torn());
  }

  RunnerResult run() {
    note_not_measurable();
    const auto turns = missing_turns(study_, log_.samples(), options_.seed, options_.retry_failed);
    report_what_is_there(study_.worth ? 0 : turns.size());
    RunnerResult result;
    std::vector<bool> worth;
    std::size_t number = 0;
    for (std::size_t i = 0; i < turns.size() && result.signal == 0; ++i) {
      if (i == 0 || turns[i].round != turns[i - 1].round) worth = cells_worth_a_round();
      if (!worth[turns[i].cell]) continue;
      if (is_over()) break;
      announce(std::span(turns).subspan(i), ++number);
      result.signal = take(study_.cells[turns[i].cell], turns[i].round);
    }
    for (Sample& sample : latest(log_.samples())) {
      if (sample.study == study_.name) result.samples.push_back(std::move(sample));
    }
    return result;
  }

 private:
  fs::path log_path() const {
    fs::create_directories(options_.output);
    return options_.output / kSamplesFile;
  }

  void say(const std::string& line) const {
    if (options_.say) return options_.say(line);
    std::cerr << "lockstep bench: " << line << std::endl;
  }

  void report_what_is_there(std::size_t missing) const {
    const auto there =
        std::count_if(log_.samples().begin(), log_.samples().end(), [&](const Sample& sample) {
          return sample.study == study_.name && sample.not_measurable.empty();
        });
    if (there == 0) return;
    const std::string rest = missing == 0 ? "" : concat("; ", missing, " are missing");
    say(concat(study_.name, ": has ", there, " samples from before", rest));
  }

  std::vector<bool> cells_worth_a_round() const {
    if (!study_.worth) return std::vector<bool>(study_.cells.size(), true);
    return study_.worth(cell_results(study_, log_.samples()));
  }

  bool is_over() const {
    if (!options_.budget_seconds || watch_.seconds() < *options_.budget_seconds) return false;
    say(concat(study_.name,
        ": the time that it was given is over; the same command with this folder as --output goes "
        "on"));
    return true;
  }

  /// The number of samples is not known of a study that decides before each round.
  void announce(std::span<const Turn> rest, std::size_t number) const {
    std::optional<double> seconds;
    if (!study_.worth) seconds = seconds_left(study_, log_.samples(), rest);
    if (options_.budget_seconds) {
      const double left = *options_.budget_seconds - watch_.seconds();
      seconds = std::min(left, seconds.value_or(left));
    }
    const std::size_t all = study_.worth ? 0 : number + rest.size() - 1;
    say(turn_line(study_, rest.front(), {.number = number, .all = all}, seconds));
  }

  bool is_noted(const StudyCell& cell) const {
    return std::any_of(log_.samples().begin(), log_.samples().end(), [&](const Sample& sample) {
      return sample.study == study_.name && sample.cell == cell.id;
    });
  }

  void note_not_measurable() {
    for (const StudyCell& cell : study_.cells) {
      if (cell.not_measurable.empty() || is_noted(cell)) continue;
      say(concat(study_.name, ": ", cell.id, " cannot be measured here: ", cell.not_measurable));
      log_.append(blank_sample(study_, cell, 1, cores_));
    }
  }

  /// Takes a sample and notes it; gives the signal that came instead, or 0.
  int take(const StudyCell& cell, int round) {
    const fs::path run = runs_ / concat(cell.id, "-", round);
    const std::string log = run.string() + ".log";
    fs::remove_all(run);  // of a bench that was stopped: a trainer would go on with it
    Sample sample = blank_sample(study_, cell, round, cores_);
    const int signal = measure(cell, run, log, sample);
    if (!options_.keep_runs) remove(run);
    if (signal != 0) {
      say(concat(study_.name, ": stopped by ", launch::signal_name(signal),
          "; run the same command to continue"));
      return signal;
    }
    say(sample_line(sample, log));
    log_.append(sample);
    return 0;
  }

  /// Fills in what the child process came to; gives the signal that ended it, or 0.
  int measure(
      const StudyCell& cell, const fs::path& run, const std::string& log, Sample& sample) const {
    sample.calibration_seconds = calibrate();
    const LoadMeter load;
    try {
      const SampleEnd end =
          run_sample(process_of(cell, {.program = program_, .bench = options_.output}, run,
                         {.file = log, .limit_seconds = study_.limit_seconds}),
              signals_);
      if (end.signal != 0) return end.signal;
      sample.seconds = end.seconds;
      sample.code = end.status.result();
      sample.failure = failure_reason(end, study_.limit_seconds);
    } catch (const std::system_error& error) {
      sample.code = static_cast<int>(ExitCode::kEnvironment);
      sample.failure = error.what();
    } catch (const InvalidArgument& error) {  // there is no such program
      sample.code = static_cast<int>(ExitCode::kEnvironment);
      sample.failure = error.what();
    }
    sample.other_share = load.read().other_share;
    if (sample.failure.empty()) read_values(cell, run, sample);
    return 0;
  }

  void read_values(const StudyCell& cell, const fs::path& run, Sample& sample) const {
    try {
      sample.values = study_.values(cell, run);
      if (sample.values.empty()) sample.failure = "its run left no values";
    } catch (const std::exception& error) {
      sample.failure = concat("its results cannot be read: ", error.what());
    }
  }

  void remove(const fs::path& run) const {
    std::error_code error;
    fs::remove_all(run, error);
    if (error) say(concat("cannot remove ", run.string(), ": ", error.message()));
  }

  const Study& study_;
  const RunnerOptions& options_;
  const std::string program_;
  const fs::path runs_;
  const int cores_ = options_.cores > 0 ? options_.cores : usable_cpu_count();
  const Stopwatch watch_;
  SampleLog log_;
  const launch::Subreaper subreaper_;
  const launch::SignalReader signals_{{SIGINT, SIGTERM, SIGHUP}};
};

}  // namespace

int RunnerResult::exit_code() const {
  if (signal != 0) return 128 + signal;
  const bool failed =
      std::ranges::any_of(samples, [](const Sample& sample) { return !sample.failure.empty(); });
  return failed ? static_cast<int>(ExitCode::kUnclassified) : 0;
}

RunnerResult run_study(const Study& study, const RunnerOptions& options) {
  check_study(study);
  return Runner(study, options).run();
}

}  // namespace lockstep::bench
