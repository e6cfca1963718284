#include "lockstep/launch/strays.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::launch {
namespace {

bool contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

constexpr pid_t kDismissed = 0;

/// Releases all that would keep others waiting: a reader of our output, an unmount, a terminal.
void detach(int control) {
  ::setsid();
  ::prctl(PR_SET_NAME, "lockstep-guard");
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  [[maybe_unused]] const int ignored = ::chdir("/");
  ::dup2(control, 3);
  const int nothing = ::open("/dev/null", O_RDWR);
  for (int stream = 0; stream < 3; ++stream) ::dup2(nothing, stream);
  ::close_range(4, ~0U, 0);
}

[[noreturn]] void keep_watch() {
  std::vector<pid_t> groups;
  groups.reserve(64);
  while (true) {
    pid_t group = kDismissed;
    const ssize_t size = ::read(3, &group, sizeof(group));
    if (size < 0 && errno == EINTR) continue;
    if (size != static_cast<ssize_t>(sizeof(group))) break;
    if (group == kDismissed) ::_exit(0);
    groups.push_back(group);
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  ::_exit(0);
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

Guardian::Guardian() {
  Pipe pipe = make_pipe();
  control_ = std::move(pipe.writer);
  pid_ = ::fork();
  if (pid_ < 0) throw_errno("launch: fork");
  if (pid_ == 0) {
    detach(pipe.reader.get());
    keep_watch();
  }
}

Guardian::~Guardian() {
  watch(kDismissed);
  control_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::watch(pid_t group) const {
  [[maybe_unused]] const ssize_t written = ::write(control_.get(), &group, sizeof(group));
}

}  // namespace lockstep::launch
