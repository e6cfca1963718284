#include "lockstep/launch/child_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sched.h>
#include <signal.h>
#include <sstream>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/patience.h"

namespace lockstep::launch {

std::string ExitStatus::text() const {
  if (signal == 0) return concat("exited with code ", code);
  return concat("was killed by ", signal_name(signal), " (signal ", signal, ")");
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? concat("signal ", signal) : concat("SIG", name);
}

std::optional<int> signal_number(const std::string& name) {
  for (int signal = 1; signal < NSIG; ++signal) {
    const std::string known = signal_name(signal);
    if (name == known || "SIG" + name == known) return signal;
  }
  return std::nullopt;
}

namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

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

void make_nonblocking(const FileDescriptor& descriptor) {
  if (::fcntl(descriptor.get(), F_SETFL, O_NONBLOCK) != 0) throw_errno("launch: set up a pipe");
}

/// The child's report to its parent when it could not become the program.
struct StartFailure {
  int error = 0;
  char step[60] = {};
};

// Everything the child needs is made before fork: after it only async-signal-safe calls are
// allowed.
struct ChildPlan {
  const char* program;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  cpu_set_t cpus;
  bool pinned;
  pid_t parent;
  int input;   // -1: inherited
  int output;  // -1: inherited
  int errors;
  int failures;
  int kept;  // -1: none
  sigset_t held;
  const Guardian* guardian;
};

std::vector<std::string> environment_of(const ChildOptions& options) {
  std::vector<std::string> environment = options.environment;
  if (options.guardian == nullptr) return environment;
  const std::string name = concat(Guardian::kVariable, "=");
  std::erase_if(environment, [&](const std::string& each) { return each.starts_with(name); });
  environment.push_back(name + options.guardian->mark());
  return environment;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

[[noreturn]] void give_up(const ChildPlan& plan, const char* step) {
  StartFailure failure;
  failure.error = errno;
  for (std::size_t i = 0; step[i] != '\0' && i + 1 < sizeof(failure.step); ++i)
    failure.step[i] = step[i];
  [[maybe_unused]] const ssize_t written = ::write(plan.failures, &failure, sizeof(failure));
  ::_exit(127);
}

void die_with_the_parent(const ChildPlan& plan) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(plan, "ask for the parent's death signal");
  // The parent may have gone between fork and prctl: then no signal will come.
  if (::getppid() != plan.parent) ::_exit(127);
}

void reset_signals(const ChildPlan& plan) {
  ::sigprocmask(SIG_SETMASK, &plan.held, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
}

void connect_streams(const ChildPlan& plan) {
  if (plan.input >= 0 && ::dup2(plan.input, STDIN_FILENO) < 0) give_up(plan, "connect input");
  if (plan.output < 0) return;
  if (::dup2(plan.output, STDOUT_FILENO) < 0) give_up(plan, "connect output");
  if (::dup2(plan.errors, STDERR_FILENO) < 0) give_up(plan, "connect errors");
}

[[noreturn]] void become(const ChildPlan& plan) {
  ::setpgid(0, 0);
  // Here, not by the parent, which may be killed before it comes to that.
  if (plan.guardian != nullptr) plan.guardian->watch(::getpid());
  die_with_the_parent(plan);
  connect_streams(plan);
  if (plan.pinned && ::sched_setaffinity(0, sizeof(plan.cpus), &plan.cpus) != 0) {
    give_up(plan, "pin to its cores");
  }
  if (plan.kept >= 0 && ::fcntl(plan.kept, F_SETFD, 0) != 0) give_up(plan, "keep a descriptor");
  reset_signals(plan);
  ::execve(plan.program, plan.arguments.data(), plan.environment.data());
  give_up(plan, "execute");
}

sigset_t signal_mask(const std::vector<int>& signals) {
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int signal : signals) ::sigaddset(&mask, signal);
  return mask;
}

cpu_set_t cpu_mask(const std::vector<int>& cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &mask);
  return mask;
}

void throw_if_not_started(const FileDescriptor& failures, const std::string& program) {
  StartFailure failure;
  const ssize_t size = retried([&] { return ::read(failures.get(), &failure, sizeof(failure)); });
  if (size != static_cast<ssize_t>(sizeof(failure))) return;
  std::string what = concat("launch: cannot ", failure.step, " ", program);
  if (failure.error == ENOEXEC) what += " (a script needs a first line such as #!/bin/sh)";
  if (failure.error == ENOENT) what += " (or the interpreter that its first line names)";
  throw std::system_error(failure.error, std::generic_category(), what);
}

bool signal_group_of(pid_t pid, int signal) { return ::kill(-pid, signal) == 0 || errno != EPERM; }

// No wait is without an end, as with strays.
void kill_and_wait(pid_t pid) {
  const bool may_end = signal_group_of(pid, SIGKILL);
  const auto end = Clock::now() + patience::kToDie;
  while (::waitpid(pid, nullptr, WNOHANG) == 0) {
    if (!may_end || Clock::now() >= end) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

bool is_executable(const std::string& path) {
  return is_file(path) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

SignalReader::SignalReader(const std::vector<int>& signals) {
  std::vector<int> ours = signals;
  std::erase_if(ours, is_ignored);
  const sigset_t set = signal_mask(ours);
  descriptor_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_) throw_errno("launch: watch signals");
  ::sigprocmask(SIG_BLOCK, &set, &before_);
}

SignalReader::~SignalReader() {
  read();  // what came at the very end has been served: it must not strike once unblocked
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> SignalReader::read() const {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(descriptor_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    signals.push_back(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

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

ChildProcess::ChildProcess(const ChildOptions& options) {
  Pipe output, errors, failures = make_pipe();
  if (!options.inherit_output) output = make_pipe(), errors = make_pipe();
  const FileDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<std::string> environment = environment_of(options);
  std::vector<std::string> arguments{options.program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  const ChildPlan plan{.program = options.program.c_str(),
      .arguments = pointers(arguments),
      .environment = pointers(environment),
      .cpus = cpu_mask(options.cpus),
      .pinned = !options.cpus.empty(),
      .parent = ::getpid(),
      .input = options.inherit_input ? -1
               : options.input >= 0  ? options.input
                                     : nothing.get(),
      .output = output.writer.get(),
      .errors = errors.writer.get(),
      .failures = failures.writer.get(),
      .kept = options.kept,
      .held = signal_mask(options.held_signals),
      .guardian = options.guardian};

  pid_ = ::fork();
  if (pid_ < 0) throw_errno("launch: fork for", options.program);
  if (pid_ == 0) become(plan);
  ::setpgid(pid_, pid_);  // by both, so that the group exists in either order
  failures.writer.reset();
  try {
    throw_if_not_started(failures.reader, options.program);
    descriptor_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    if (!descriptor_) throw_errno("launch: watch", options.program);
    if (output.reader) make_nonblocking(output.reader), make_nonblocking(errors.reader);
  } catch (...) {
    kill_and_wait(pid_);
    throw;
  }
  output_ = std::move(output.reader);
  errors_ = std::move(errors.reader);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      descriptor_(std::move(other.descriptor_)),
      output_(std::move(other.output_)),
      errors_(std::move(other.errors_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) kill_and_wait(pid_);
}

std::optional<ExitStatus> ChildProcess::status() const {
  siginfo_t info{};
  const auto id = static_cast<id_t>(pid_);
  if (::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0) throw_errno("launch: wait");
  if (info.si_pid == 0) return std::nullopt;
  if (info.si_code == CLD_EXITED) return ExitStatus{.code = info.si_status};
  return ExitStatus{.signal = info.si_status};
}

bool ChildProcess::signal_group(int signal) const noexcept {
  return pid_ < 0 || signal_group_of(pid_, signal);
}

std::string find_program(const std::string& name, const std::string& search_path) {
  check(!name.empty(), "run: the program's name is empty");
  if (name.find('/') == std::string::npos) {
    for (const std::string& folder : split(search_path, ':')) {
      const std::string path = (folder.empty() ? "." : folder) + "/" + name;
      if (is_executable(path)) return path;
    }
  }
  const std::string path = name.find('/') == std::string::npos ? "./" + name : name;
  check(std::filesystem::exists(path), "run: there is no program ", name,
      name == path ? "" : ", neither in PATH nor in the current directory");
  check(is_file(path), "run: ", name, " is not a file that can be executed");
  check(is_executable(path), "run: ", name, " may not be executed; chmod +x ", path,
      ", or name its interpreter first");
  return path;
}

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
    const ssize_t size = retried([&] { return ::read(kControl, &group, sizeof(group)); });
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
  retried([&] { return ::waitpid(pid_, nullptr, 0); });
}

void Guardian::watch(pid_t group) const {
  [[maybe_unused]] const ssize_t written = ::write(control_.get(), &group, sizeof(group));
}

}  // namespace lockstep::launch
