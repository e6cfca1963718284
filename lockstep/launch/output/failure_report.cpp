#include "lockstep/launch/output/failure_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/text.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kLongestMessage = std::size_t{1} << 16;

constexpr std::size_t kMostLines = 12;  // of a rank's own words, after the first
constexpr std::size_t kMostDetails = 3;

using Lines = std::vector<std::string>;

std::string quoted(const Lines& lines) {
  std::string result;
  for (const std::string& line : lines) result += "  | " + line + "\n";
  return result;
}

/// Returns a rank's own words after their first line, which is in the headline.
std::string rest_of(const std::string& message) {
  Lines lines = split(message, '\n');
  lines.erase(lines.begin());
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.size() <= kMostLines) return quoted(lines);
  const auto left = lines.size() - kMostLines;
  lines.resize(kMostLines);
  return quoted(lines) + concat("  | and ", left, " more lines\n");
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

std::string log_line(const Failure& failure) {
  return failure.log.empty() ? "" : concat("lockstep: its whole output: ", failure.log, "\n");
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
  const std::string facts = memory_line(failure) + advice(failure) + log_line(failure);
  const std::string headline = failure_headline(failure);
  if (!failure.message.empty()) {
    const auto first_line = failure.message.substr(0, failure.message.find('\n'));
    return concat(headline, ": ", first_line, "\n", rest_of(failure.message), facts);
  }
  // One more line may say what follows from the failure.
  const auto taken = static_cast<std::size_t>(std::count(facts.begin(), facts.end(), '\n')) + 1;
  const std::size_t room = kMostDetails - std::min(taken, kMostDetails - 1);
  const Lines& lines = failure.last_lines;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(room, lines.size()));
  return concat(headline, "\n", quoted({lines.end() - shown, lines.end()}), facts);
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
