#include "bench/experiment/sample_process.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/output/worker_output.h"
#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::bench {
namespace {

using launch::ChildProcess;

OomKills since(const OomKills& before) {
  const OomKills now = oom_kills();
  return {.in_cgroup = now.in_cgroup - before.in_cgroup, .on_host = now.on_host - before.on_host};
}

/// Runs one child and passes on what it writes.
class Watched {
 public:
  Watched(const SampleCommand& command, const launch::SignalReader& signals)
      : command_(command),
        signals_(signals),
        console_(STDOUT_FILENO, STDERR_FILENO),
        output_(route(command), route(command)),
        child_({.program = command.program,
            .arguments = command.arguments,
            .environment = command.environment,
            .cpus = command.cpus,
            .guardian = &guardian_}) {
    output_.connect(child_.take_output(), child_.take_errors());
  }

  SampleEnd run() {
    SampleEnd end;
    while (!has_ended(end)) wait();
    end.seconds = watch_.seconds();
    // A process that still holds the pipes is no part of the sample.
    while (output_.read(console_)) {
    }
    output_.close(console_);
    console_.flush();
    end.last_lines = output_.last_lines();
    return end;
  }

 private:
  static launch::Route route(const SampleCommand& command) {
    return {.shown = false, .file = command.log.string(), .prefix = {}};
  }

  bool has_ended(SampleEnd& end) const {
    if (const auto status = child_.status()) {
      end.status = *status;
      return true;
    }
    const auto came = signals_.read();
    if (!came.empty()) end.signal = came.front();
    end.out_of_time = came.empty() && left() <= 0;
    if (!end.out_of_time && end.signal == 0) return false;
    end.status = {.signal = SIGKILL};  // by the destructor of the child
    return true;
  }

  void wait() {
    std::vector<pollfd> waited{
        {child_.descriptor(), POLLIN, 0}, {signals_.descriptor(), POLLIN, 0}};
    output_.add_to(waited);
    constexpr double kLongest = 1e6;  // milliseconds
    const double milliseconds = std::clamp(std::ceil(left() * 1000), 0.0, kLongest);
    ::poll(waited.data(), waited.size(), static_cast<int>(milliseconds));
    output_.read(console_);
  }

  double left() const { return command_.limit_seconds - watch_.seconds(); }

  const SampleCommand& command_;
  const launch::SignalReader& signals_;
  launch::Guardian guardian_;
  launch::Console console_;
  launch::WorkerOutput output_;
  const Stopwatch watch_;
  ChildProcess child_;
};

/// Says what an exit code of ours means; empty: nothing in particular.
std::string meaning(int code) {
  constexpr int kMostSignals = 64;
  if (code > 128 && code <= 128 + kMostSignals) {
    return concat("a process of it was ended by ", launch::signal_name(code - 128));
  }
  static const std::map<ExitCode, const char*> kMeanings{
      {ExitCode::kUsage, "bad flags or configuration"}, {ExitCode::kData, "bad data or snapshot"},
      {ExitCode::kEnvironment, "port, disk, device or permission"},
      {ExitCode::kPeersLost, "a peer died or could not be found"},
      {ExitCode::kDiverged, "NaN or Inf in training"},
      {ExitCode::kStopped, "stopped by a signal, with a snapshot"}};
  const auto found = kMeanings.find(static_cast<ExitCode>(code));
  return found == kMeanings.end() ? "" : found->second;
}

std::string what_happened(const SampleEnd& end, double limit_seconds) {
  if (end.out_of_time) return concat("took longer than ", limit_seconds, " s and was ended");
  if (end.status.signal != 0) return end.status.text();
  const std::string means = meaning(end.status.code);
  return end.status.text() + (means.empty() ? "" : " (" + means + ")");
}

std::string memory_verdict(const SampleEnd& end) {
  if (end.status.result() != 128 + SIGKILL || end.out_of_time) return "";
  if (end.oom.in_cgroup > 0) return ", for want of memory (the limit of our cgroup)";
  if (end.oom.on_host > 0) return ", probably for want of memory (the host killed a process)";
  return "";
}

// A launcher says which rank failed and why, and after it where the rest of that can be read.
bool tells_cause(const std::string& line) {
  return line.find("the run failed: ") != std::string::npos;
}

bool has_text(const std::string& line) {
  return line.find_first_not_of(" \t") != std::string::npos;
}

std::string telling_line(const std::vector<std::string>& lines) {
  auto found = std::find_if(lines.rbegin(), lines.rend(), tells_cause);
  if (found == lines.rend()) found = std::find_if(lines.rbegin(), lines.rend(), has_text);
  return found == lines.rend() ? "" : ": " + *found;
}

std::string replaced(std::string text, const std::string& name, const std::string& value) {
  const auto at = text.find(name);
  return at == std::string::npos ? text : text.replace(at, name.size(), value);
}

/// Puts the bench's folder and our path where a command names them.
std::string placed(const std::string& argument, const CellPaths& paths) {
  const std::string folder = std::filesystem::absolute(paths.bench).string();
  return replaced(replaced(argument, kBenchFolder, folder), kThisProgram, paths.program);
}

std::string name_of(const std::string& variable) { return variable.substr(0, variable.find('=')); }

std::vector<std::string> environment_of(const StudyCell& cell) {
  std::vector<std::string> environment = launch::current_environment();
  for (const std::string& variable : cell.environment) {
    std::erase_if(
        environment, [&](const std::string& each) { return name_of(each) == name_of(variable); });
    environment.push_back(variable);
  }
  return environment;
}

std::vector<int> cpus_of(const StudyCell& cell) {
  if (cell.cores == 0) return {};
  std::vector<int> cpus = available_cpus();
  cpus.resize(std::min(cpus.size(), static_cast<std::size_t>(cell.cores)));
  return cpus;
}

}  // namespace

SampleEnd run_sample(const SampleCommand& command, const launch::SignalReader& signals) {
  const OomKills before = oom_kills();
  const auto known = launch::children();
  SampleEnd end = Watched(command, signals).run();
  launch::kill_strays(known);
  end.oom = since(before);
  return end;
}

std::string failure_reason(const SampleEnd& end, double limit_seconds) {
  if (end.status.succeeded()) return "";
  return what_happened(end, limit_seconds) + memory_verdict(end) + telling_line(end.last_lines);
}

std::vector<std::string> noted_command(const StudyCell& cell) {
  std::vector<std::string> words = cell.command;
  if (!cell.program.empty()) words.insert(words.begin(), cell.program);
  return words;
}

SampleCommand process_of(const StudyCell& cell, const CellPaths& paths,
    const std::filesystem::path& run, const CellLog& log) {
  std::vector<std::string> arguments;
  for (const std::string& argument : cell.command) arguments.push_back(placed(argument, paths));
  arguments.insert(arguments.end(), {"--output", run.string()});
  return {.program = cell.program.empty()
                         ? paths.program
                         : launch::find_program(cell.program, system_variable("PATH")),
      .arguments = std::move(arguments),
      .environment = environment_of(cell),
      .cpus = cpus_of(cell),
      .log = log.file,
      .limit_seconds = log.limit_seconds};
}

namespace fs = std::filesystem;

Trials::Trials(const CellPaths& paths, const std::string& study)
    : paths_(paths),
      folder_(fs::absolute(paths.bench) / "runs" / study),
      signals_(std::vector<int>{SIGINT, SIGTERM, SIGHUP}) {
  fs::create_directories(folder_);
}

SampleEnd Trials::run(const StudyCell& cell, const fs::path& run, double limit_seconds) {
  fs::remove_all(run);  // of a bench that was stopped
  const SampleCommand command =
      process_of(cell, paths_, run, {.file = log_of(cell), .limit_seconds = limit_seconds});
  SampleEnd end = run_sample(command, *signals_);
  if (end.signal == 0) return end;
  signals_.reset();
  throw StoppedError(end.signal);
}

}  // namespace lockstep::bench
