#include "lockstep/launch/hosts/made_hosts.h"

#include <algorithm>
#include <cstdlib>
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
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::launch {
namespace {

FileDescriptor current_network() {
  FileDescriptor network(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!network) throw_errno("hosts: open the network namespace");
  return network;
}

void enter_new_network() {
  if (::unshare(CLONE_NEWNET) != 0) throw_errno("hosts: make a network namespace");
}

void enter(int network) {
  if (::setns(network, CLONE_NEWNET) != 0) throw_errno("hosts: enter a network namespace");
}

// What waits in the bucket longer than this is dropped, as a switch would.
void limit(const std::string& interface, std::int64_t rate) {
  if (rate == 0) return;
  run_tool({"tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate", concat(rate, "bit"),
      "burst", std::to_string(burst_bytes(rate)), "latency", "20ms"});
}

[[noreturn]] void fail(const std::vector<std::string>& command, const std::string& reason) {
  throw std::system_error(std::make_error_code(std::errc::operation_not_supported),
      concat("hosts: ", joined(command, " "), ": ", reason));
}

/// Reads what there is, and keeps the beginning.
void read_some(FileDescriptor& pipe, std::string& beginning) {
  constexpr std::size_t kKept = 1024;
  char bytes[1 << 16];
  const ssize_t size = retried([&] { return ::read(pipe.get(), bytes, sizeof(bytes)); });
  if (size == 0) pipe.reset();
  if (size <= 0) return;
  const auto room = kKept - std::min(kKept, beginning.size());
  beginning.append(bytes, std::min(room, static_cast<std::size_t>(size)));
}

/// Waits for a tool's end, and returns with it what it said first. It would not come to its end if
/// nobody read what it writes.
std::pair<ExitStatus, std::string> end_of(ChildProcess& child) {
  FileDescriptor output = child.take_output(), errors = child.take_errors();
  std::string unused, said;
  while (true) {
    const auto status = child.status();
    read_some(output, unused);
    read_some(errors, said);
    if (status) return {*status, said.substr(0, said.find('\n'))};
    pollfd waited[] = {
        {child.descriptor(), POLLIN, 0}, {output.get(), POLLIN, 0}, {errors.get(), POLLIN, 0}};
    ::poll(waited, 3, -1);
  }
}

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
  const std::string reason = read_to_end(pipe.reader, "hosts: read what is missing");
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

HostNetwork::HostNetwork(const NetworkOptions& options) : home_(current_network()) {
  check(options.hosts >= 1 && options.hosts <= kMostHosts, "hosts: --count must be 1 to ",
      kMostHosts, ": ", options.hosts);
  enter_new_network();
  const Visit back(home_.get());
  bridge_ = current_network();
  run_tool({"ip", "link", "add", "bridge", "type", "bridge"});
  run_tool({"ip", "link", "set", "bridge", "up"});
  for (int host = 0; host < options.hosts; ++host) add_host(host, options.rate);
}

// Called in the bridge's namespace. Limited at both ends: what the host sends at its own, what it
// receives at the bridge's.
void HostNetwork::add_host(int host, std::int64_t rate) {
  enter_new_network();
  hosts_.push_back(current_network());
  run_tool({"ip", "link", "set", "lo", "up"});
  enter(bridge_.get());
  const std::string port = concat("port", host);
  const std::string space = concat("/proc/", ::getpid(), "/fd/", hosts_.back().get());
  run_tool({"ip", "link", "add", port, "type", "veth", "peer", "name", kInterface, "netns", space});
  run_tool({"ip", "link", "set", port, "master", "bridge", "up"});
  limit(port, rate);
  enter(hosts_.back().get());
  run_tool({"ip", "address", "add", address(host) + "/24", "dev", kInterface});
  run_tool({"ip", "link", "set", kInterface, "up"});
  limit(kInterface, rate);
  enter(bridge_.get());
}

std::string HostNetwork::address(int host) { return concat("10.77.77.", host + 1); }

HostNetwork::Visit::Visit(const HostNetwork& network, int host) : home_(network.home_.get()) {
  enter(network.hosts_.at(static_cast<std::size_t>(host)).get());
}

HostNetwork::Visit::~Visit() {
  // In a foreign network nothing that follows could be trusted.
  if (::setns(home_, CLONE_NEWNET) != 0) std::abort();
}

std::int64_t burst_bytes(std::int64_t bits_per_second) {
  constexpr std::int64_t kLeastBurst = 16 * 1024;  // some packets of the usual size
  return std::max(kLeastBurst, bits_per_second / 8 / 500);
}

std::string find_tool(const std::string& name) {
  const std::string folders = system_variable("PATH") + ":/usr/sbin:/sbin:/usr/bin:/bin";
  for (const std::string& folder : split(folders, ':')) {
    const std::string path = concat(folder, "/", name);
    if (!folder.empty() && ::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

void run_tool(const std::vector<std::string>& command) {
  const std::string path = find_tool(command.front());
  if (path.empty()) fail(command, concat("there is no program ", command.front()));
  ChildProcess child({.program = path,
      .arguments = {command.begin() + 1, command.end()},
      .environment = current_environment(),
      .cpus = {}});
  const auto [status, said] = end_of(child);
  if (status.succeeded()) return;
  fail(command, said.empty() ? status.text() : said);
}

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
