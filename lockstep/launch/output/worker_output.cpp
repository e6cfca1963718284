#include "lockstep/launch/output/worker_output.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <regex>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/text.h"

namespace lockstep::launch {
namespace {

bool is_shown(const OutputOptions& options, int local_rank, Stream stream) {
  const auto& ranks = options.shown_ranks;
  if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), local_rank) == ranks.end())
    return false;
  return !options.redirects.has(local_rank, stream) || options.tee.has(local_rank, stream);
}

bool is_unseen(const OutputOptions& options, int local_rank) {
  return options.first_inherits && local_rank == 0;
}

std::string log_of(const OutputOptions& options, int rank) {
  return options.log_dir + "/rank-" + std::to_string(rank);
}

std::string file_of(const OutputOptions& options, int local_rank, int rank, Stream stream) {
  if (options.log_dir.empty() || is_unseen(options, local_rank)) return "";
  const std::string start = log_of(options, rank);
  if (options.redirects.empty() && options.tee.empty()) return start + ".log";
  const bool kept =
      options.redirects.has(local_rank, stream) || options.tee.has(local_rank, stream);
  if (!kept) return "";
  return start + (stream == Stream::kOutput ? ".stdout.log" : ".stderr.log");
}

int shown_ranks(const OutputOptions& options, int local_size) {
  int shown = 0;
  for (int rank = 0; rank < local_size; ++rank) {
    shown += is_shown(options, rank, Stream::kOutput) || is_shown(options, rank, Stream::kErrors);
  }
  return shown;
}

void replace_all(std::string& text, const std::string& name, const std::string& value) {
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size()) {
    text.replace(at, name.size(), value);
  }
}

constexpr std::size_t kLongestLine = std::size_t{1} << 16;
constexpr std::size_t kTailLines = 20;
constexpr std::size_t kTailBytes = 500;

/// Returns what a terminal would show at the end: the text after the last carriage return.
std::string_view visible(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  const auto start = line.rfind('\r');
  return start == std::string_view::npos ? line : line.substr(start + 1);
}

/// Returns whether a line is of a C++ stack, which says less than what stands above it.
bool is_of_frames(std::string_view line) {
  return line.starts_with("frame #") || line.starts_with("Exception raised from ");
}

constexpr std::size_t kRoom = std::size_t{1} << 20;

// A pipe that poll calls writable takes this much at once: the descriptor is shared with others and
// must stay blocking.
constexpr std::size_t kPiece = 4096;

bool is_writable(int descriptor) {
  pollfd waited{descriptor, POLLOUT, 0};
  return ::poll(&waited, 1, 0) == 1;
}

std::shared_ptr<FileDescriptor> open_log(const std::string& path, bool keep) {
  if (path.empty()) return nullptr;
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | (keep ? 0 : O_TRUNC);
  auto file = std::make_shared<FileDescriptor>(::open(path.c_str(), flags, 0644));
  if (!*file) throw_errno("launch: open the log", path);
  return file;
}

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = retried([&] { return ::write(descriptor, text.data(), text.size()); });
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

StreamMask StreamMask::parse(const std::string& flag, const std::string& text) {
  static const std::regex kForAll("[0-3]");
  static const std::regex kForRanks("([0-9]{1,6}:[0-3],)*[0-9]{1,6}:[0-3]");
  StreamMask mask;
  if (std::regex_match(text, kForAll)) {
    mask.all_ = text[0] - '0';
    return mask;
  }
  check(std::regex_match(text, kForRanks), flag,
      ": must be 0 (none), 1 (output), 2 (errors) or 3 (both), or RANK:MASK,RANK:MASK: ", text);
  for (const std::string& entry : split(text, ',')) {
    const auto colon = entry.find(':');
    mask.ranks_[*parse_number<int>(entry.substr(0, colon))] = entry[colon + 1] - '0';
  }
  return mask;
}

bool StreamMask::has(int local_rank, Stream stream) const {
  const auto rank = ranks_.find(local_rank);
  const int mask = rank == ranks_.end() ? all_ : rank->second;
  return (mask & static_cast<int>(stream)) != 0;
}

bool StreamMask::empty() const {
  const auto none = [](const auto& rank) { return rank.second == 0; };
  return all_ == 0 && std::all_of(ranks_.begin(), ranks_.end(), none);
}

Route route_of(
    const OutputOptions& options, int local_rank, int rank, int local_size, Stream stream) {
  const bool alone = shown_ranks(options, local_size) <= 1;
  return {.shown = is_shown(options, local_rank, stream),
      .file = file_of(options, local_rank, rank, stream),
      .prefix = alone ? "" : options.prefix};
}

std::string message_log_of(const OutputOptions& options, int local_rank, int rank) {
  if (options.log_dir.empty() || !is_unseen(options, local_rank)) return "";
  return log_of(options, rank) + ".log";
}

bool append_to(const std::string& path, const std::string& text) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
  const FileDescriptor file(::open(path.c_str(), kFlags, 0644));
  return file && ::write(file.get(), text.data(), text.size()) == std::ssize(text);
}

std::string fill_prefix(std::string pattern, int rank, int local_rank, const std::string& role) {
  replace_all(pattern, "${role_name}", role);
  replace_all(pattern, "${local_rank}", std::to_string(local_rank));
  replace_all(pattern, "${rank}", std::to_string(rank));
  return pattern;
}

void check_log_dir(const std::string& log_dir, bool append) {
  namespace fs = std::filesystem;
  if (log_dir.empty()) return;
  std::error_code error;
  fs::create_directories(log_dir, error);
  check(!error || fs::exists(log_dir), "--log-dir: cannot make the folder ", log_dir, ": ",
      error.message());
  check(fs::is_directory(log_dir), "--log-dir: ", log_dir, " is not a folder");
  check(append || fs::is_empty(log_dir), "--log-dir: ", log_dir,
      " is not empty; name an empty folder, so that no earlier log is overwritten");
}

std::string LineBuffer::take(std::string_view bytes) {
  const auto end = bytes.rfind('\n');
  if (end == std::string_view::npos) {
    partial_ += bytes;
    return partial_.size() < kLongestLine ? "" : rest();
  }
  std::string lines = std::exchange(partial_, std::string(bytes.substr(end + 1)));
  lines += bytes.substr(0, end + 1);
  return lines;
}

std::string_view LineBuffer::bar() const {
  return partial_.find('\r') == std::string::npos ? std::string_view() : visible(partial_);
}

std::string LineBuffer::rest() {
  if (partial_.empty()) return "";
  return std::exchange(partial_, "") + "\n";
}

std::string prefixed(std::string_view lines, std::string_view prefix) {
  std::string result;
  result.reserve(lines.size() + 32 * prefix.size());
  while (!lines.empty()) {
    const auto end = lines.find('\n');
    const auto size = end == std::string_view::npos ? lines.size() : end + 1;
    const std::string_view line = lines.substr(0, size);
    result.append(prefix);
    if (line.find('\r') == line.npos)
      result.append(line);
    else
      result.append(visible(line)).append("\n");
    lines.remove_prefix(size);
  }
  return result;
}

void Tail::take(std::string_view lines) {
  // From the end: of a large text only the last lines are looked at.
  std::deque<std::string> last;
  while (!lines.empty() && last.size() < kTailLines) {
    const auto previous = lines.rfind('\n', lines.size() - 2);
    const auto start = lines.size() < 2 || previous == std::string_view::npos ? 0 : previous + 1;
    const std::string_view line = visible(lines.substr(start)).substr(0, kTailBytes);
    if (!is_of_frames(line)) last.emplace_front(line);
    lines = lines.substr(0, start);
  }
  for (std::string& line : last) lines_.push_back(std::move(line));
  while (lines_.size() > kTailLines) lines_.pop_front();
}

void Console::write(Stream stream, std::string_view text) {
  Queue& queue = stream == Stream::kOutput ? output_ : errors_;
  queue.text.append(text);
  flush(queue);
}

void Console::flush() {
  flush(output_);
  flush(errors_);
}

bool Console::has_room() const { return output_.size() < kRoom && errors_.size() < kRoom; }

void Console::add_to(std::vector<pollfd>& waited) const {
  for (const Queue* queue : {&output_, &errors_}) {
    if (queue->size() > 0) waited.push_back({queue->descriptor, POLLOUT, 0});
  }
}

void Console::flush(Queue& queue) {
  while (queue.size() > 0 && is_writable(queue.descriptor)) {
    const std::size_t piece = std::min(queue.size(), kPiece);
    const ssize_t written = ::write(queue.descriptor, queue.text.data() + queue.start, piece);
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) break;
    // Nobody reads any more, or nothing can be written: the run matters more than its output.
    queue.start += written < 0 ? queue.size() : static_cast<std::size_t>(written);
  }
  if (queue.start == queue.text.size() || queue.start > kRoom) {
    queue.text.erase(0, queue.start);
    queue.start = 0;
  }
}

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
