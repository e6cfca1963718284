#include "lockstep/launch/strays.h"

#include <algorithm>
#include <fstream>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

namespace lockstep::launch {
namespace {

bool contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
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
  for (const pid_t pid : children()) {
    if (!contains(known, pid)) ::waitpid(pid, nullptr, WNOHANG);
  }
}

void kill_strays(const std::vector<pid_t>& known) {
  // A killed parent leaves us its children: again until none is new. The bound ends a race with a
  // fork bomb.
  for (int round = 0; round < 100; ++round) {
    bool found = false;
    for (const pid_t pid : children()) {
      if (contains(known, pid)) continue;
      found = true;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    if (!found) return;
  }
}

}  // namespace lockstep::launch
