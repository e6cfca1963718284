#include "lockstep/launch/restart.h"

#include <algorithm>
#include <signal.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"

namespace lockstep::launch {
namespace {

constexpr double kSoon = 10;  // seconds
constexpr int kLongestPause = 60;

bool is_stuck(const RestartHistory& history, const AttemptEnd& end) {
  if (!history.furthest) return false;
  const std::int64_t step = end.step.value_or(0);
  return step == 0 || step == *history.furthest;
}

std::string place(std::int64_t step) {
  return step > 0 ? concat("at step ", step) : "before its first step";
}

std::string no_progress(const RestartHistory& history, const AttemptEnd& end) {
  const std::int64_t step = end.step.value_or(0);
  const std::int64_t before = *history.furthest;
  std::string text = step == before ? concat("no progress: died again ", place(step), ", as before")
                                    : concat("no progress: died ", place(step),
                                          ", although an earlier attempt reached step ", before);
  if (history.code_at_furthest != end.code) {
    text += concat("; the exit code is that of the first failure: ", history.code_at_furthest);
  }
  return text;
}

RestartHistory with(RestartHistory history, const AttemptEnd& end) {
  const bool has_gained = end.step && end.step > history.furthest;
  history.loops = end.seconds < kSoon && !has_gained ? history.loops + 1 : 0;
  if (has_gained) {
    history.furthest = end.step;
    history.code_at_furthest = end.code;
  }
  return history;
}

}  // namespace

std::chrono::seconds back_off(int loops) {
  if (loops < 2) return std::chrono::seconds(0);
  return std::chrono::seconds(std::min(kLongestPause, 1 << std::min(loops - 2, 10)));
}

int code_of_stop(const RestartRules& rules, int signal) {
  return rules.lockstep_codes ? static_cast<int>(ExitCode::kStopped) : 128 + signal;
}

bool is_worth_a_restart(const ExitStatus& status) {
  switch (status.result()) {
    case static_cast<int>(ExitCode::kUsage):
    case static_cast<int>(ExitCode::kData):
    case static_cast<int>(ExitCode::kEnvironment):
    case static_cast<int>(ExitCode::kDiverged):
    case static_cast<int>(ExitCode::kStopped):
    case 128 + SIGHUP:
    case 128 + SIGINT:
    case 128 + SIGQUIT:
    case 128 + SIGTERM:
      return false;
    default:
      return true;
  }
}

NextAttempt next_attempt(
    const RestartRules& rules, const RestartHistory& history, const AttemptEnd& end) {
  const auto over = [&](int code, const std::string& reason = "") {
    return NextAttempt{
        .starts = false, .code = code, .reason = reason, .history = with(history, end)};
  };
  if (!end.failure || rules.most == 0) return over(end.code);
  if (rules.lockstep_codes && !is_worth_a_restart(*end.failure)) {
    return over(end.code, "not restarted: it would fail in the same way");
  }
  if (is_stuck(history, end)) {
    return over(history.code_at_furthest, no_progress(history, end));
  }
  if (history.restarts >= rules.most) {
    return over(end.code, concat("restarts used up: --max-restarts ", rules.most));
  }
  if (end.signal) {
    return over(
        code_of_stop(rules, *end.signal), concat("not restarted: ", signal_name(*end.signal)));
  }
  NextAttempt next{.starts = true, .code = end.code, .reason = "", .history = with(history, end)};
  ++next.history.restarts;
  next.pause = back_off(next.history.loops);
  return next;
}

}  // namespace lockstep::launch
