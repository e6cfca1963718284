#include "lockstep/launch/strays.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

/// The findings of one look at the strays.
struct Strays {
  std::vector<pid_t> left;
  bool may_end = false;  ///< some were killed, and end soon or have left us their children
};

std::vector<pid_t> strays_among(
    const std::vector<pid_t>& children, const std::vector<pid_t>& known) {
  std::vector<pid_t> strays;
  std::copy_if(children.begin(), children.end(), std::back_inserter(strays),
      [&](pid_t pid) { return std::find(known.begin(), known.end(), pid) == known.end(); });
  return strays;
}

Strays kill_once(const std::vector<pid_t>& known) {
  Strays found;
  for (const pid_t pid : strays_among(children(), known)) {
    const bool is_killed = ::kill(pid, SIGKILL) == 0 || errno != EPERM;
    const bool has_ended = ::waitpid(pid, nullptr, WNOHANG) != 0;
    if (!has_ended) found.left.push_back(pid);
    found.may_end = found.may_end || is_killed || has_ended;
  }
  return found;
}

}  // namespace

Subreaper::Subreaper() {
  ::prctl(PR_GET_CHILD_SUBREAPER, &before_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Subreaper::~Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, before_); }

std::vector<pid_t> children() {
  std::ifstream file("/proc/thread-self/children");
  std::vector<pid_t> result;
  for (pid_t pid = 0; file >> pid;) result.push_back(pid);
  return result;
}

void reap_strays(const std::vector<pid_t>& known) {
  for (const pid_t pid : strays_among(children(), known)) ::waitpid(pid, nullptr, WNOHANG);
}

// A killed parent leaves us its children: again until none is new. No wait is without an end: a
// process may belong to another user (`sudo`), hang in the kernel, or make others without end.
std::vector<pid_t> kill_strays(
    const std::vector<pid_t>& known, std::chrono::milliseconds patience) {
  const auto end = Clock::now() + patience;
  while (true) {
    Strays found = kill_once(known);
    if (!found.may_end || Clock::now() >= end) return found.left;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace lockstep::launch
