#include <cerrno>
#include <poll.h>
#include <system_error>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/hosts/network.h"
#include "lockstep/launch/worker_environment.h"

namespace lockstep::launch {
namespace {

[[noreturn]] void fail(const std::vector<std::string>& command, const std::string& reason) {
  throw std::system_error(std::make_error_code(std::errc::operation_not_supported),
      concat("hosts: ", joined(command, " "), ": ", reason));
}

ExitStatus wait_for(const ChildProcess& child) {
  pollfd waited{child.descriptor(), POLLIN, 0};
  while (true) {
    if (const auto status = child.status()) return *status;
    ::poll(&waited, 1, -1);
  }
}

std::string first_line(const FileDescriptor& pipe) {
  char bytes[1024];
  const ssize_t size = ::read(pipe.get(), bytes, sizeof(bytes));
  const std::string text(bytes, size > 0 ? static_cast<std::size_t>(size) : 0);
  return text.substr(0, text.find('\n'));
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
  const FileDescriptor errors = child.take_errors();
  const ExitStatus status = wait_for(child);
  if (status.succeeded()) return;
  const std::string said = first_line(errors);
  fail(command, said.empty() ? status.text() : said);
}

}  // namespace lockstep::launch
