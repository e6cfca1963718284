#include "lockstep/launch/guardian.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <signal.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lockstep/core/text.h"

namespace lockstep::launch {
namespace {

constexpr pid_t kDismissed = 0;
constexpr int kControl = 3;

/// Closes all descriptors from this one on, also where the kernel or a filter has no close_range.
void close_from(unsigned first) {
  if (::close_range(first, ~0U, 0) == 0) return;
  constexpr long kMost = 1 << 16;
  const auto end = static_cast<unsigned>(std::clamp(::sysconf(_SC_OPEN_MAX), 0L, kMost));
  for (unsigned each = first; each < end; ++each) ::close(static_cast<int>(each));
}

/// Releases all that would keep others waiting: a reader of our output, an unmount, a terminal; and
/// above all the other end of the control pipe, which is to end with the launcher.
void detach(int control) {
  ::setsid();
  ::prctl(PR_SET_NAME, "lockstep-guard");
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  [[maybe_unused]] const int ignored = ::chdir("/");
  ::dup2(control, kControl);
  const int nothing = ::open("/dev/null", O_RDWR);
  for (int stream = 0; stream < kControl; ++stream) ::dup2(nothing, stream);
  close_from(kControl + 1);
}

bool has_mark(pid_t pid, const std::string& variable) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  for (std::string each; std::getline(file, each, '\0');) {
    if (each == variable) return true;
  }
  return false;
}

// The descriptor comes first: the number may belong to another process by the time of the signal.
bool kill_if_marked(pid_t pid, const std::string& variable) {
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  return process && has_mark(pid, variable) &&
         ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0;
}

bool kill_marked(const std::string& variable) {
  bool found = false;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const auto pid = parse_number<int>(entry.path().filename().string());
    if (pid && *pid != ::getpid()) found = kill_if_marked(*pid, variable) || found;
  }
  return found;
}

// Allocates, although another thread of the launcher may have held malloc's lock at the fork: glibc
// frees it in the child.
[[noreturn]] void keep_watch(const std::string& variable) {
  std::vector<pid_t> groups;
  groups.reserve(64);
  while (true) {
    pid_t group = kDismissed;
    const ssize_t size = ::read(kControl, &group, sizeof(group));
    if (size < 0 && errno == EINTR) continue;
    if (size != static_cast<ssize_t>(sizeof(group))) break;
    if (group == kDismissed) ::_exit(0);
    groups.push_back(group);
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  // Again, as one that is killed may just have started another. The bound ends a race with a fork
  // bomb.
  for (int round = 0; round < 100 && kill_marked(variable); ++round) ::usleep(1000);
  ::_exit(0);
}

}  // namespace

std::string Guardian::make_mark() {
  std::array<std::uint64_t, 2> numbers{};
  if (::getrandom(numbers.data(), sizeof(numbers), 0) != sizeof(numbers)) {
    throw_errno("launch: draw a random number");
  }
  std::ostringstream text;
  for (const std::uint64_t number : numbers) {
    text << std::hex << std::setw(16) << std::setfill('0') << number;
  }
  return text.str();
}

Guardian::Guardian(std::string mark) : mark_(std::move(mark)) {
  Pipe pipe = make_pipe();
  control_ = std::move(pipe.writer);
  pid_ = ::fork();
  if (pid_ < 0) throw_errno("launch: fork");
  if (pid_ == 0) {
    control_.reset();
    detach(pipe.reader.get());
    keep_watch(std::string(kVariable) + "=" + mark_);
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
