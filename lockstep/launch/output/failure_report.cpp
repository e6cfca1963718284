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

// Lines after the headline; one is kept for what follows from the failure.
constexpr std::size_t kMostDetails = 3;

using Lines = std::vector<std::string>;

std::string quoted(const Lines& lines) {
  std::string result;
  for (const std::string& line : lines) result += "  | " + line + "\n";
  return result;
}

/// A rank's own words, as far as they are shown.
struct Excerpt {
  Lines shown;
  std::size_t left = 0;  ///< lines after them
};

/// Takes a message's lines after the first, which is in the headline. Where no other line of the
/// report does, one says how many are left.
Excerpt begin_of(const std::string& message, std::size_t room, bool is_logged) {
  Lines lines = split(message, '\n');
  lines.erase(lines.begin());
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.size() <= room) return {lines};
  const std::size_t shown = is_logged ? room : room - 1, left = lines.size() - shown;
  lines.resize(shown);
  return {lines, left};
}

/// Takes the last lines of a rank's output.
Excerpt end_of(const Lines& lines, std::size_t room) {
  return {{lines.end() - static_cast<std::ptrdiff_t>(std::min(room, lines.size())), lines.end()}};
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

/// Says where the rest is, and how many lines of the message are left.
std::string log_line(const Failure& failure, std::size_t left) {
  const std::string more = concat(left, left == 1 ? " more line" : " more lines");
  if (!failure.log.empty()) {
    return concat(
        "lockstep: ", left > 0 ? more + ", and " : "", "its whole output: ", failure.log, "\n");
  }
  if (left == 0) return "";
  if (failure.message_log.empty()) return concat("  | and ", more, "\n");
  return concat("lockstep: ", more, ": ", failure.message_log, "\n");
}

std::string advice(const Failure& failure) {
  const bool lost_peers = failure.status.code == static_cast<int>(ExitCode::kPeersLost);
  if (!lost_peers || failure.nodes == 1) return "";
  return "lockstep: it lost its peers; the cause is likely on another node: see the launcher "
         "there\n";
}

// Where it is says more than its last output.
std::string hang_report(const Failure& failure) {
  const Hang& hang = *failure.hang;
  const std::string others = hang.others.empty() ? "" : concat("lockstep: ", hang.others, "\n");
  const std::string log =
      hang.log.empty() ? "" : concat("lockstep: its whole stack: ", hang.log, "\n");
  const auto shown = std::min(kMostDetails, hang.frames.size());
  const Lines frames(hang.frames.begin(), hang.frames.begin() + static_cast<std::ptrdiff_t>(shown));
  return concat(failure_headline(failure), "\n", quoted(frames), log, others);
}

std::size_t room_beside(const std::string& facts) {
  const auto taken = static_cast<std::size_t>(std::ranges::count(facts, '\n')) + 1;
  return kMostDetails - std::min(taken, kMostDetails - 1);
}

}  // namespace

std::string failure_headline(const Failure& failure) {
  return concat("rank ", failure.rank, " of ", failure.world_size, " (host ", failure.host,
      ", pid ", failure.pid, ") ", failure.hang ? failure.hang->what : failure.status.text());
}

std::string failure_report(const Failure& failure) {
  if (failure.hang) return hang_report(failure);
  const std::string facts = memory_line(failure) + advice(failure);
  const std::size_t room = room_beside(facts + log_line(failure, 0));
  const bool is_logged = !failure.log.empty();
  const Excerpt words = failure.message.empty() ? end_of(failure.last_lines, room)
                                                : begin_of(failure.message, room, is_logged);
  const std::string first = failure.message.substr(0, failure.message.find('\n'));
  return concat(failure_headline(failure), first.empty() ? "" : ": " + first, "\n",
      quoted(words.shown), facts, log_line(failure, words.left));
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
