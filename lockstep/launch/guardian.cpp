#include "lockstep/launch/guardian.h"

#include <cerrno>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::launch {
namespace {

constexpr pid_t kDismissed = 0;

/// Lets go of all that would keep others waiting: a reader of our output, an unmount, a terminal.
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

Guardian::Guardian() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("launch: make a pipe");
  FileDescriptor reader(ends[0]);
  control_ = FileDescriptor(ends[1]);
  pid_ = ::fork();
  if (pid_ < 0) throw_errno("launch: fork");
  if (pid_ == 0) {
    detach(reader.get());
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
