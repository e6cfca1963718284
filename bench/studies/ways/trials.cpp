#include "bench/experiment/trials.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "bench/studies/ways/study.h"
#include "bench/study/timed_steps.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"

namespace lockstep::bench::ways {
namespace {

namespace fs = std::filesystem;

constexpr double kTrialLimit = 30 * 60;  // seconds
constexpr double kRunSeconds = 4;        // of one that is as fast as the probe

void say(const std::string& line) { std::cerr << "lockstep bench: ways: " << line << std::endl; }

// What `lockstep` itself said last; a launcher's ranks and libraries may have said more.
std::string last_words(const SampleEnd& end) {
  const std::string ours = "lockstep: ";
  const auto found = std::find_if(end.last_lines.rbegin(), end.last_lines.rend(),
      [&](const std::string& line) { return line.starts_with(ours); });
  return found == end.last_lines.rend() ? failure_reason(end, kTrialLimit)
                                        : found->substr(ours.size());
}

// Why a cell cannot be trained; empty if it can. Data that cannot be read are no cell's own fault.
std::string refusal_of(Trials& trials, StudyCell cell) {
  if (!cell.not_measurable.empty()) return cell.not_measurable;
  cell.command.emplace_back("--dry-run");
  const SampleEnd end = trials.run(cell, trials.run_of(cell), kTrialLimit);
  if (end.status.succeeded()) return "";
  const std::string reason = last_words(end);
  if (end.status.result() == static_cast<int>(ExitCode::kData)) throw DataError(reason);
  return reason;
}

// Images of a run that takes some seconds at the rate of this cell.
std::int64_t images_at(Trials& trials, const StudyCell& cell) {
  const fs::path run = trials.run_of(cell);
  const SampleEnd end = trials.run(cell, run, kTrialLimit);
  check(end.status.succeeded(), "bench: ", cell.id, " cannot be trained: ", last_words(end));
  auto lines = read_steps(run / "metrics.jsonl");
  fs::remove_all(run);
  if (lines.empty()) throw DataError(concat(cell.id, ": a run of some seconds made no step"));
  if (lines.size() > 1) lines.erase(lines.begin());  // it warms up
  TimedSteps timed;
  for (const TimedSteps& line : lines) timed += line;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(kRunSeconds * timed.samples / timed.seconds));
}

}  // namespace

void explore(StudyOptions& options, const CellPaths& paths) {
  Trials trials(paths, "ways");
  const std::vector<Point> points = grid(options);
  say(concat("asking lockstep train about ", points.size(), " cells"));
  std::optional<Point> first;
  for (const Point& point : points) {
    const StudyCell cell = cell_of(point, options);
    const std::string reason = refusal_of(trials, cell);
    if (reason.empty()) {
      if (!first) first = point;
    } else {
      options.ways.refused[cell.id] = reason;
      say(concat("left out: ", cell.id, ": ", reason));
    }
  }
  check(first.has_value(),
      "bench: no cell can be trained: ", first ? "" : options.ways.refused.begin()->second);
  const StudyCell probe = probe_of(*first, options);
  say(concat("measuring how long a run should be: ", probe.id));
  options.ways.images = images_at(trials, probe);
}

}  // namespace lockstep::bench::ways
