#include "lockstep/core/process.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/frame_log.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

bool tell_launcher(const std::string& message) {
  const auto path = environment("TORCHELASTIC_ERROR_FILE");
  // Only the process that the launcher started speaks for the rank: one further down may fail, and
  // a script go on after it. Another launcher's file has another name.
  if (!path || !path->starts_with(concat("/proc/", ::getppid(), "/fd/"))) return false;
  std::ofstream file(*path);
  file << message << std::flush;
  return file.good();
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

void open_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // The kernel gives the lowest free number, which is this one. Without a /dev a folder that can
    // be neither read nor written keeps the place.
    if (::open("/dev/null", O_RDWR) < 0) ::open("/", O_PATH | O_DIRECTORY);
  }
}

void repair_inherited_state() {
  open_standard_streams();
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);
}

// Not getrusage(): its maximum goes over exec, so a small program started by a large one has the
// large one's.
std::optional<std::int64_t> peak_memory_bytes() {
  std::ifstream file("/proc/self/status");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_peak_memory(text);
}

double process_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  constexpr double kNano = 1e-9;
  return static_cast<double>(time.tv_sec) + kNano * static_cast<double>(time.tv_nsec);
}

std::optional<std::int64_t> parse_peak_memory(std::string_view status) {
  constexpr std::string_view kKey = "\nVmHWM:";
  constexpr std::int64_t kKibibyte = 1024;  // which the file calls kB
  const auto key = status.find(kKey);
  if (key == std::string_view::npos) return std::nullopt;
  const auto digit = status.find_first_not_of(" \t", key + kKey.size());
  const auto unit = status.find(" kB\n", key);
  if (digit == std::string_view::npos || unit < digit || unit == std::string_view::npos)
    return std::nullopt;
  const auto kibibytes = parse_number<std::int64_t>(status.substr(digit, unit - digit));
  if (!kibibytes || *kibibytes < 0) return std::nullopt;
  return *kibibytes * kKibibyte;
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since_epoch =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char whole[32], text[48];
  std::strftime(whole, sizeof whole, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text, sizeof text, "%s.%03dZ", whole, static_cast<int>(since_epoch.count() % 1000));
  return text;
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  const bool is_known = ::gethostname(name.data(), HOST_NAME_MAX) == 0 && name[0] != '\0';
  return is_known ? name.data() : "unknown";
}

std::string own_program(const std::string& what) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    throw std::system_error(
        error, concat(what, ": cannot tell where this program lies; is /proc mounted?"));
  return program.string();
}

std::string temporary_folder() {
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  if (error)
    throw std::system_error(error,
        concat("TMPDIR must name the folder for temporary files: ", system_variable("TMPDIR")));
  return folder.string();
}

std::string host_identity() {
  struct stat pid_namespace {};
  ::stat("/proc/self/ns/pid", &pid_namespace);
  return concat(first_line("/proc/sys/kernel/random/boot_id"), " ", pid_namespace.st_ino, " ",
      ::getuid(), " ", system_variable("LOCKSTEP_TEST_HOST"));
}

void report_error(const char* program, const std::exception& error) {
  const std::string message = without_frames(error.what());
  if (!tell_launcher(message)) std::cerr << program << ": " << message << std::endl;
}

}  // namespace lockstep
