#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/hosts/network.h"
#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::launch {
namespace {

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

}  // namespace

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

}  // namespace lockstep::launch
