#include "lockstep/launch/output/worker_output.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep::launch {
namespace {

std::shared_ptr<FileDescriptor> open_log(const std::string& path, bool keep) {
  if (path.empty()) return nullptr;
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | (keep ? 0 : O_TRUNC);
  auto file = std::make_shared<FileDescriptor>(::open(path.c_str(), flags, 0644));
  if (!*file) throw_errno("launch: open the log", path);
  return file;
}

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool ends_within_a_line(int file) {
  const off_t size = ::lseek(file, 0, SEEK_END);
  char last = '\n';
  return size > 0 && ::pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

void begin(const FileDescriptor& file, const std::string& heading) {
  const std::string start = ends_within_a_line(file.get()) ? "\n" : "";
  write_all(file.get(), start + heading);  // a full disk is reported with the first lines
}

}  // namespace

WorkerOutput::WorkerOutput(const Route& output, const Route& errors, const std::string& heading)
    : channels_{Channel{Stream::kOutput, output, {}, open_log(output.file, !heading.empty())},
          Channel{Stream::kErrors, errors, {}, nullptr}} {
  channels_[1].file =
      errors.file == output.file ? channels_[0].file : open_log(errors.file, !heading.empty());
  if (channels_[1].file && !heading.empty()) begin(*channels_[1].file, heading);
}

void WorkerOutput::connect(FileDescriptor output, FileDescriptor errors) {
  channels_[0].pipe = std::move(output);
  channels_[1].pipe = std::move(errors);
}

void WorkerOutput::add_to(std::vector<pollfd>& waited) const {
  for (const Channel& channel : channels_) {
    if (channel.pipe) waited.push_back({channel.pipe.get(), POLLIN, 0});
  }
}

bool WorkerOutput::read(Console& console) {
  bool found = false;
  for (Channel& channel : channels_) found = read(channel, console) || found;
  return found;
}

bool WorkerOutput::read(Channel& channel, Console& console) {
  if (!channel.pipe) return false;
  char bytes[1 << 16];
  const ssize_t size = ::read(channel.pipe.get(), bytes, sizeof(bytes));
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size <= 0) {
    finish(channel, console);
    return false;
  }
  pass(channel, console, {bytes, static_cast<std::size_t>(size)});
  return true;
}

void WorkerOutput::pass(Channel& channel, Console& console, std::string_view bytes) {
  const bool raw = channel.route.prefix.empty();
  if (channel.route.shown && raw) console.write(channel.stream, bytes);
  if (is_split()) log(channel, console, bytes);
  pass_lines(channel, console, channel.lines.take(bytes));
  if (channel.route.shown && !raw) pass_bar(channel, console);
}

/// Shows a progress bar among the lines of other ranks, now and then: its own end may be far away.
void WorkerOutput::pass_bar(Channel& channel, Console& console) {
  constexpr std::chrono::seconds kBetween(1);
  const std::string_view bar = channel.lines.bar();
  const auto now = std::chrono::steady_clock::now();
  if (bar.empty() || now < channel.bar_shown + kBetween) return;
  channel.bar_shown = now;
  console.write(channel.stream, prefixed(concat(bar, "\n"), channel.route.prefix));
}

void WorkerOutput::pass_lines(Channel& channel, Console& console, const std::string& lines) {
  if (lines.empty()) return;
  const std::string& prefix = channel.route.prefix;
  if (channel.route.shown && !prefix.empty())
    console.write(channel.stream, prefixed(lines, prefix));
  if (!is_split()) log(channel, console, lines);
  tail_.take(lines);
}

void WorkerOutput::log(const Channel& channel, Console& console, std::string_view text) {
  if (!channel.file || write_all(channel.file->get(), text)) return;
  if (std::exchange(log_failed_, true)) return;
  const std::string reason = std::strerror(errno);
  console.write(Stream::kErrors,
      concat("lockstep: the log ", channel.route.file, " is incomplete: ", reason, "\n"));
}

void WorkerOutput::finish(Channel& channel, Console& console) {
  channel.pipe.reset();
  pass_lines(channel, console, channel.lines.rest());
}

void WorkerOutput::close(Console& console) {
  for (Channel& channel : channels_) {
    if (channel.pipe) finish(channel, console);
  }
}

void WorkerOutput::note(const std::string& message) const {
  const auto& file = channels_[1].file;
  if (file && !message.empty()) write_all(file->get(), concat("lockstep: ", message, "\n"));
}

bool WorkerOutput::open() const { return channels_[0].pipe || channels_[1].pipe; }

}  // namespace lockstep::launch
