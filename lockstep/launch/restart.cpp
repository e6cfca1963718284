#include "lockstep/launch/restart.h"

#include <algorithm>
#include <signal.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"

namespace lockstep::launch {
namespace {

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
  if (end.step && end.step > history.furthest) {
    history.furthest = end.step;
    history.code_at_furthest = end.code;
  }
  return history;
}

}  // namespace

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
    const int code =
        rules.lockstep_codes ? static_cast<int>(ExitCode::kStopped) : 128 + *end.signal;
    return over(code, concat("not restarted: ", signal_name(*end.signal)));
  }
  NextAttempt next{.starts = true, .code = end.code, .reason = "", .history = with(history, end)};
  ++next.history.restarts;
  return next;
}

}  // namespace lockstep::launch
