#include "lockstep/launch/failure_report.h"

#include <sstream>

#include <signal.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"

namespace lockstep::launch {
namespace {

std::string quoted(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += "  | " + line + "\n";
  return result;
}

std::string memory_verdict(const Failure& failure) {
  if (failure.status.signal != SIGKILL) return "";
  if (failure.oom.in_cgroup > 0) {
    return "lockstep: out of memory: the kernel ended it at the cgroup's memory limit\n";
  }
  if (failure.oom.on_host > 0) {
    return "lockstep: probably out of memory: the kernel ended a process of this host for that\n";
  }
  return "";
}

std::string advice(const Failure& failure) {
  const bool lost_peers = failure.status.code == static_cast<int>(ExitCode::kPeersLost);
  if (!lost_peers || failure.nodes == 1) return "";
  return "lockstep: it lost its peers; the cause is likely on another node: see the launcher "
         "there\n";
}

}  // namespace

std::string failure_headline(const Failure& failure) {
  return concat(
      "rank ", failure.rank, " of ", failure.world_size, " (host ", failure.host, ", pid ",
      failure.pid, ") ", failure.status.text());
}

std::string failure_report(const Failure& failure, const std::string& consequence) {
  std::string text = concat("lockstep: ", consequence, ": ", failure_headline(failure), "\n");
  text += memory_verdict(failure);
  if (!failure.message.empty()) text += "lockstep: it said:\n" + quoted(failure.message);
  if (!failure.last_lines.empty()) text += "lockstep: its last lines:\n";
  for (const std::string& line : failure.last_lines) text += "  | " + line + "\n";
  if (!failure.log.empty()) text += "lockstep: its whole output: " + failure.log + "\n";
  return text + advice(failure);
}

}  // namespace lockstep::launch
