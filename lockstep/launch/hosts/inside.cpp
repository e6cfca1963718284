#include "lockstep/launch/hosts/inside.h"

#include <exception>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sstream>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/process.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/hosts/network.h"
#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::launch {

namespace {

void die_with(const FileDescriptor& parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) throw_errno("hosts: ask for a death signal");
  // The parent may have gone before: it alone has the other end of this pipe.
  pollfd waited{parent.get(), POLLIN, 0};
  if (::poll(&waited, 1, 0) != 0) ::_exit(static_cast<int>(ExitCode::kEnvironment));
}

std::string names_of_hosts() {
  std::ifstream usual("/etc/hosts");
  std::ostringstream text;
  text << usual.rdbuf() << '\n';
  const int count = environment_count("PET_NNODES").value_or(0);
  for (int host = 0; host < count && host < HostNetwork::kMostHosts; ++host) {
    // Sockets that serve both kinds of address ask for the second.
    for (const char* start : {"", "::ffff:"}) {
      text << start << HostNetwork::address(host) << " host-" << host << '\n';
    }
  }
  return text.str();
}

/// Puts a file of our own over /etc/hosts, with names for all hosts: what asks for the name of an
/// address would wait for a server that is out of reach. It has no name of its own for long.
void mount_own_names() {
  std::string path = temporary_folder() + "/lockstep-hosts-XXXXXX";
  const FileDescriptor file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) throw_errno("hosts: make a file of names", path);
  const std::string text = names_of_hosts();
  const bool written =
      ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fchmod(file.get(), 0644) == 0;
  if (written) ::mount(path.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr);  // may be missing
  ::unlink(path.c_str());
}

void mount_own_proc() {
  const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (::mount("proc", "/proc", "proc", flags, nullptr) != 0) throw_errno("hosts: mount /proc");
}

/// Does what the first process of a host does: waits for the command and for orphans. It waits for
/// those that are left when the command ends, too: who dies with the host's first process is
/// missing from what its cores have done.
int be_first_process(const std::vector<std::string>& command, const SignalReader& signals) {
  mount_own_proc();
  mount_own_names();
  const ChildProcess child({.program = find_program(command.front(), system_variable("PATH")),
      .arguments = {command.begin() + 1, command.end()},
      .environment = current_environment(),
      .cpus = {},
      .inherit_input = true,
      .inherit_output = true});
  while (true) {
    if (const auto status = child.status()) {
      kill_strays({child.pid()});
      return status->result();
    }
    pollfd waited{signals.descriptor(), POLLIN, 0};
    ::poll(&waited, 1, -1);
    for (const int signal : signals.read()) {
      if (signal == SIGCHLD) {
        reap_strays({child.pid()});
      } else if (signal == kPowerFailure) {
        ::kill(-1, SIGKILL);  // all processes of the host but this one
      } else {
        child.signal_group(signal);
      }
    }
  }
}

// Ends as a killed host does if it was one.
int wait_for(pid_t pid) {
  constexpr int kKilled = 128 + SIGKILL;
  int status = 0;
  if (retried([&] { return ::waitpid(pid, &status, 0); }) < 0) throw_errno("hosts: wait");
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == kKilled) ::raise(SIGKILL);
  return code;
}

constexpr std::int64_t kAnyRate = 1'000'000'000;

/// Makes all that a host needs, and says what cannot be.
std::string try_in_this_process() {
  try {
    const HostNetwork network({.hosts = 1, .rate = kAnyRate});
    keep_apart();  // last: what is started after it is in another namespace
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string read_all(const FileDescriptor& pipe) {
  std::string text;
  char bytes[512];
  for (ssize_t size = 1; size > 0;) {
    size = ::read(pipe.get(), bytes, sizeof(bytes));
    if (size > 0) text.append(bytes, static_cast<std::size_t>(size));
  }
  return text;
}

std::string try_in_a_process() {
  Pipe pipe = make_pipe();
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("hosts: fork");
  if (pid == 0) {
    const std::string reason = try_in_this_process();
    [[maybe_unused]] const ssize_t written =
        ::write(pipe.writer.get(), reason.data(), reason.size());
    ::_exit(0);
  }
  pipe.writer.reset();
  const std::string reason = read_all(pipe.reader);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return reason.empty() && status != 0 ? "trying it out failed" : reason;
}

std::string missing() {
  for (const char* tool : {"ip", "tc"}) {
    if (find_tool(tool).empty()) {
      return concat("needs the program ", tool, ": apt install iproute2, or name real hosts");
    }
  }
  const std::string reason = try_in_a_process();
  if (reason.empty()) return "";
  if (::geteuid() != 0) return "needs root, to make network namespaces; or name real hosts";
  return concat("cannot make network namespaces (", reason, "); name real hosts");
}

}  // namespace

void keep_apart() {
  if (::unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS) != 0) {
    throw_errno("hosts: make namespaces of processes, mounts and names");
  }
  // Else what is mounted there would be seen here.
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    throw_errno("hosts: keep mounts apart");
  }
}

int run_as_host(const std::string& name, const std::vector<std::string>& command) {
  // Blocked in both: signals to the group reach the first process, which passes them on.
  const SignalReader signals(
      {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, kPowerFailure});
  keep_apart();
  if (::sethostname(name.data(), name.size()) != 0) throw_errno("hosts: set the host's name");
  Pipe pipe = make_pipe();
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("hosts: fork");
  if (pid > 0) return wait_for(pid);
  pipe.writer.reset();
  die_with(pipe.reader);
  return be_first_process(command, signals);
}

const std::string& hosts_missing() {
  static const std::string kReason = missing();
  return kReason;
}

}  // namespace lockstep::launch
