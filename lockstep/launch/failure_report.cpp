#include "lockstep/launch/failure_report.h"

#include <nlohmann/json.hpp>
#include <signal.h>
#include <sstream>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kLongestMessage = std::size_t{1} << 16;

std::string quoted(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += "  | " + line + "\n";
  return result;
}

std::string memory_line(const Failure& failure) {
  if (failure.status.signal != SIGKILL) return "";
  if (failure.oom.in_cgroup > 0) {
    return "lockstep: out of memory: the kernel ended it at the cgroup's memory limit\n";
  }
  if (failure.oom.on_host > 0) {
    return "lockstep: probably out of memory: the kernel ended a process of this host for that\n";
  }
  return "";
}

std::string advice(const Failure& failure) {
  const bool lost_peers = failure.status.code == static_cast<int>(ExitCode::kPeersLost);
  if (!lost_peers || failure.nodes == 1) return "";
  return "lockstep: it lost its peers; the cause is likely on another node: see the launcher "
         "there\n";
}

}  // namespace

std::string failure_headline(const Failure& failure) {
  return concat("rank ", failure.rank, " of ", failure.world_size, " (host ", failure.host,
      ", pid ", failure.pid, ") ", failure.status.text());
}

std::string failure_report(const Failure& failure) {
  std::string text = failure_headline(failure) + "\n";
  text += memory_line(failure);
  if (!failure.message.empty()) text += "lockstep: it said:\n" + quoted(failure.message);
  if (!failure.last_lines.empty()) text += "lockstep: its last lines:\n";
  for (const std::string& line : failure.last_lines) text += "  | " + line + "\n";
  if (!failure.log.empty()) text += "lockstep: its whole output: " + failure.log + "\n";
  return text + advice(failure);
}

ErrorFile::ErrorFile() : file_(::memfd_create("lockstep-error", MFD_CLOEXEC)) {
  if (!file_) throw_errno("launch: make a worker's error file");
}

std::string ErrorFile::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_.get());
}

std::string ErrorFile::message() const {
  std::string content(kLongestMessage, '\0');
  const ssize_t size = ::pread(file_.get(), content.data(), content.size(), 0);
  content.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return error_file_message(content);
}

std::string error_file_message(const std::string& content) {
  const auto json = nlohmann::json::parse(content, nullptr, false);
  if (!json.is_object() || !json.contains("message")) return content;
  const auto& message = json["message"];
  if (message.is_string()) return message.get<std::string>();
  if (message.is_object() && message.contains("message") && message["message"].is_string()) {
    return message["message"].get<std::string>();
  }
  return content;
}

}  // namespace lockstep::launch
