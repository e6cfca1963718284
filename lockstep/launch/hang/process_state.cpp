#include "lockstep/launch/hang/process_state.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::launch {
namespace {

/// Reads a file of /proc; empty when the process has gone, or may not be looked at.
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string_view first_word(std::string_view text) {
  return text.substr(0, text.find_first_of(" \n"));
}

}  // namespace

char state_in(std::string_view stat) {
  const auto name_end = stat.rfind(") ");
  return name_end == std::string_view::npos || name_end + 2 >= stat.size() ? '?'
                                                                           : stat[name_end + 2];
}

std::string_view status_value(std::string_view status, std::string_view name) {
  while (!status.empty()) {
    const auto end = std::min(status.find('\n'), status.size());
    const std::string_view line = status.substr(0, end);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(":")) {
      const auto value = line.substr(name.size() + 1);
      return value.substr(std::min(value.find_first_not_of(" \t"), value.size()));
    }
    status.remove_prefix(std::min(end + 1, status.size()));
  }
  return {};
}

bool holds_signal(std::string_view mask, int signal) {
  const auto from_end = static_cast<std::size_t>((signal - 1) / 4);
  if (from_end >= mask.size()) return false;
  const char digit = mask[mask.size() - 1 - from_end];
  const int value = digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10;
  return (value >> ((signal - 1) % 4) & 1) != 0;
}

char ProcessState::letter() const { return state_in(text_of(concat("/proc/", process_, "/stat"))); }

bool ProcessState::is_traced() const {
  const std::string status = text_of(concat("/proc/", process_, "/status"));
  const std::string_view tracer = status_value(status, "TracerPid");
  return !tracer.empty() && tracer != "0";
}

bool ProcessState::handles(int signal) const {
  const std::string status = text_of(concat("/proc/", process_, "/status"));
  return holds_signal(status_value(status, "SigCgt"), signal);
}

std::vector<pid_t> ProcessState::threads() const {
  std::vector<pid_t> threads;
  std::error_code error;
  for (std::filesystem::directory_iterator task(concat("/proc/", process_, "/task"), error), end;
       !error && task != end; task.increment(error))
    if (const auto id = parse_number<pid_t>(task->path().filename().string()))
      threads.push_back(*id);
  std::sort(threads.begin(), threads.end(), [this](pid_t a, pid_t b) {
    return std::pair(a != process_, a) < std::pair(b != process_, b);
  });
  return threads;
}

std::string ProcessState::thread_text(pid_t thread) const {
  const std::string folder = concat("/proc/", process_, "/task/", thread, "/");
  const std::string waits_in = text_of(folder + "wchan");
  const std::string system_call = text_of(folder + "syscall");
  std::string text = concat("state ", state_in(text_of(folder + "stat")));
  if (!waits_in.empty() && waits_in != "0") text += concat(", in the kernel's ", waits_in);
  if (!system_call.empty()) text += concat(", system call ", first_word(system_call));
  return text;
}

}  // namespace lockstep::launch
