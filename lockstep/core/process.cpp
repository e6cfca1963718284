#include "lockstep/core/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kStart = "\nException raised from ";
constexpr std::string_view kFrame = "\nframe #";

std::mutex frames_mutex;
std::string frames_folder;  // empty: none was chosen
std::string frames_path;    // empty: no frames yet

FileDescriptor open_frames(const std::string& path) {
  return FileDescriptor(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644));
}

FileDescriptor first_frames_file() {
  std::error_code ignored;
  if (!frames_folder.empty() && std::filesystem::is_directory(frames_folder, ignored)) {
    const std::string rank = environment("RANK").value_or("0");
    frames_path = concat(frames_folder, "/rank-", rank, "-frames.log");
    if (FileDescriptor file = open_frames(frames_path)) return file;
  }
  const auto folder = std::filesystem::temp_directory_path(ignored);
  frames_path = (ignored ? "/tmp" : folder.string()) + "/lockstep-frames-XXXXXX";
  FileDescriptor file(::mkostemp(frames_path.data(), O_CLOEXEC));
  if (!file) frames_path.clear();
  return file;
}

/// Returns the log's name; empty when it cannot be written.
std::string log_frames(const std::string& text) {
  const std::lock_guard lock(frames_mutex);
  const FileDescriptor file = frames_path.empty() ? first_frames_file() : open_frames(frames_path);
  const auto size = static_cast<ssize_t>(text.size());
  return file && ::write(file.get(), text.data(), text.size()) == size ? frames_path : "";
}

bool tell_launcher(const std::string& message) {
  const auto path = environment("TORCHELASTIC_ERROR_FILE");
  // Only the process that the launcher started speaks for the rank: one further down may fail, and
  // a script go on after it. Another launcher's file has another name.
  if (!path || !path->starts_with(concat("/proc/", ::getppid(), "/fd/"))) return false;
  std::ofstream file(*path);
  file << message << std::flush;
  return file.good();
}

}  // namespace

FramedText cut_at_frames(std::string_view text) {
  const auto start = text.find(kStart);
  if (start == std::string_view::npos) return {std::string(text), "", ""};
  auto end = text.find('\n', start + 1);
  while (end != std::string_view::npos && text.substr(end).starts_with(kFrame)) {
    end = text.find('\n', end + 1);
  }
  end = std::min(end, text.size());
  std::string_view after = text.substr(end);
  // LibTorch ends the frames with an empty line.
  if (after == "\n" || after.starts_with("\n\n")) after.remove_prefix(1);
  return {std::string(text.substr(0, start)), std::string(text.substr(start + 1, end - start - 1)),
      std::string(after)};
}

std::string without_frames(std::string_view text) {
  FramedText parts = cut_at_frames(text);
  std::string shown = std::move(parts.before);
  while (!parts.frames.empty()) {
    const std::string log = log_frames(concat(shown, '\n', parts.frames, '\n'));
    if (!log.empty()) shown += concat(" (C++ frames: ", log, ")");
    parts = cut_at_frames(std::string(parts.after));
    shown += parts.before;
  }
  return shown;
}

void keep_frames_in(const std::string& folder) {
  const std::lock_guard lock(frames_mutex);
  frames_folder = folder;
}

FrameFilter::FrameFilter() : before_(std::cerr.rdbuf(this)) {}

FrameFilter::~FrameFilter() { std::cerr.rdbuf(before_); }

// Each insertion comes here whole: nothing is kept back, and no text is looked at twice.
std::streamsize FrameFilter::xsputn(const char* text, std::streamsize size) {
  const std::string_view whole(text, static_cast<std::size_t>(size));
  if (whole.find(kStart) == std::string_view::npos) return before_->sputn(text, size);
  const std::string shown = without_frames(whole);
  before_->sputn(shown.data(), static_cast<std::streamsize>(shown.size()));
  return size;
}

FrameFilter::int_type FrameFilter::overflow(int_type letter) {
  return traits_type::eq_int_type(letter, traits_type::eof())
             ? sync()
             : before_->sputc(static_cast<char>(letter));
}

int FrameFilter::sync() { return before_->pubsync(); }

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
  const auto kibibytes = keyed_number(text_in("/proc/self/status"), "VmHWM:");
  return kibibytes ? std::optional(1024 * *kibibytes) : std::nullopt;
}

double process_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  constexpr double kNano = 1e-9;
  return static_cast<double>(time.tv_sec) + kNano * static_cast<double>(time.tv_nsec);
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
  return concat(first_line(text_in("/proc/sys/kernel/random/boot_id")), " ", pid_namespace.st_ino,
      " ", ::getuid(), " ", system_variable("LOCKSTEP_TEST_HOST"));
}

void report_error(const char* program, const std::exception& error) {
  const std::string message = without_frames(error.what());
  if (!tell_launcher(message)) std::cerr << program << ": " << message << std::endl;
}

}  // namespace lockstep
