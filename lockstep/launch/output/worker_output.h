#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/file_descriptor.h"

namespace lockstep::launch {

/// The two streams of a worker; the numbers are torchrun's.
enum class Stream { kOutput = 1, kErrors = 2 };

/// The streams that are meant of each local rank: torchrun's `--redirects` and `--tee`.
class StreamMask {
 public:
  StreamMask() = default;

  /// Reads `0` none, `1` output, `2` errors, `3` both, for all ranks; or `RANK:MASK,...` for these
  /// ranks and none of the others. Throws InvalidArgument that names the flag.
  ///
  ///     StreamMask::parse("--tee", "0:3,1:2")
  static StreamMask parse(const std::string& flag, const std::string& text);

  bool has(int local_rank, Stream stream) const;

  /// Returns whether no stream is meant.
  bool empty() const;

 private:
  int all_ = 0;
  std::map<int, int> ranks_;
};

/// Where the workers' output goes.
struct OutputOptions {
  std::string log_dir;                     ///< a folder that is there; empty text: no files
  StreamMask redirects;                    ///< streams that go to a file and not to the terminal
  StreamMask tee;                          ///< streams that go to both
  std::vector<int> shown_ranks;            ///< local ranks whose output is shown; empty: all
  std::string prefix = "[rank ${rank}] ";  ///< of each line when several ranks are shown
  bool append = false;          ///< the folder may hold logs of an earlier run, which are continued
  bool first_inherits = false;  ///< local rank 0 writes to the launcher's own output and error
};

/// Where one stream of one worker goes.
struct Route {
  bool shown = true;
  std::string file;    ///< empty: no file
  std::string prefix;  ///< of each line on the terminal; empty: bytes pass unchanged
};

/// Decides a stream's route. Without masks both streams of a worker go to `rank-N.log`; with masks
/// those that are named go to `rank-N.stdout.log` and `rank-N.stderr.log`. N is the rank in the
/// world.
Route route_of(
    const OutputOptions& options, int local_rank, int rank, int local_size, Stream stream);

/// Returns the file for the last message of a rank whose output is kept nowhere, because it goes to
/// the launcher's own; empty: none.
std::string message_log_of(const OutputOptions& options, int local_rank, int rank);

/// Appends to a log that no rank's output goes to; returns false if it cannot be written.
bool append_to(const std::string& path, const std::string& text);

/// Fills in `${rank}`, `${local_rank}` and `${role_name}`.
std::string fill_prefix(std::string pattern, int rank, int local_rank, const std::string& role);

/// Makes the log folder if it is not there. Throws InvalidArgument if it is no folder, cannot be
/// made or, where logs are not continued, is not empty.
void check_log_dir(const std::string& log_dir, bool append = false);

/// Collects bytes and returns them as whole lines.
class LineBuffer {
 public:
  /// Takes bytes and returns the whole lines that are now there, each with its newline, as one
  /// text. A line longer than 64 KiB is returned in pieces, each closed by a newline.
  std::string take(std::string_view bytes);

  /// Returns the line that is not finished as a terminal would show it, if it was drawn anew by a
  /// carriage return, as progress bars are; empty otherwise.
  std::string_view bar() const;

  /// Returns what is left, closed by a newline; empty if nothing is.
  std::string rest();

 private:
  std::string partial_;
};

/// Puts a prefix before each line of a text, of which a terminal would show what is behind the last
/// carriage return.
std::string prefixed(std::string_view lines, std::string_view prefix);

/// The last 20 lines of a text, each up to 500 bytes, without those of a C++ stack.
class Tail {
 public:
  /// Takes whole lines.
  void take(std::string_view lines);

  /// Returns them oldest first, without newlines.
  std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;
};

/// Writes to the launcher's own output and error without ever waiting for their reader.
///
/// What the reader cannot take yet is kept; when much is kept, `has_room` says that no more should
/// be read from the workers, so that they wait and no line is lost. A reader that is gone takes no
/// more: the text is dropped.
class Console {
 public:
  Console(int output, int errors) : output_{output, {}, 0}, errors_{errors, {}, 0} {}

  /// Appends text to a stream and writes what can be written at once.
  void write(Stream stream, std::string_view text);

  /// Writes what can be written at once.
  void flush();

  bool has_room() const;
  bool empty() const { return output_.size() == 0 && errors_.size() == 0; }

  /// Adds the descriptors for whose readers there is text.
  void add_to(std::vector<pollfd>& waited) const;

 private:
  struct Queue {
    int descriptor;
    std::string text;
    std::size_t start;
    std::size_t size() const { return text.size() - start; }
  };

  static void flush(Queue& queue);

  Queue output_;
  Queue errors_;
};

/// Carries what one worker writes to where it goes: the terminal, log files, and the memory of its
/// last lines.
class WorkerOutput {
 public:
  /// Opens the log files. With a heading they keep what they hold, and those that take the errors
  /// go on with it; those that take the output alone stay exactly what the worker wrote. Throws
  /// std::system_error that names the file.
  WorkerOutput(const Route& output, const Route& errors, const std::string& heading = "");

  /// Takes over the reading ends of the worker's pipes.
  void connect(FileDescriptor output, FileDescriptor errors);

  /// Adds the pipes that are still open.
  void add_to(std::vector<pollfd>& waited) const;

  /// Reads what is there, at most 64 KiB of each stream, and passes it on; false when nothing was
  /// there. A pipe whose writers are gone is closed.
  bool read(Console& console);

  /// Closes the pipes and passes on lines that were not finished.
  void close(Console& console);

  bool open() const;

  /// Appends a worker's message to the log of its errors, if there are both.
  void note(const std::string& message) const;

  /// Returns the last lines of both streams, oldest first.
  std::vector<std::string> last_lines() const { return tail_.lines(); }

 private:
  struct Channel {
    Stream stream;
    Route route;
    FileDescriptor pipe;
    std::shared_ptr<FileDescriptor> file;  // both streams may share one
    LineBuffer lines = {};
    std::chrono::steady_clock::time_point bar_shown = {};
  };

  bool read(Channel& channel, Console& console);
  void pass(Channel& channel, Console& console, std::string_view bytes);
  static void pass_bar(Channel& channel, Console& console);
  void pass_lines(Channel& channel, Console& console, const std::string& lines);
  void finish(Channel& channel, Console& console);
  void log(const Channel& channel, Console& console, std::string_view text);
  bool is_split() const { return channels_[0].file != channels_[1].file; }

  std::array<Channel, 2> channels_;
  Tail tail_;
  bool log_failed_ = false;
};

}  // namespace lockstep::launch
