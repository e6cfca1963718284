#include "lockstep/launch/hosts/available.h"

#include <exception>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/hosts/inside.h"
#include "lockstep/launch/hosts/network.h"
#include "lockstep/launch/hosts/tool.h"

namespace lockstep::launch {
namespace {

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

const std::string& hosts_missing() {
  static const std::string kReason = missing();
  return kReason;
}

}  // namespace lockstep::launch
