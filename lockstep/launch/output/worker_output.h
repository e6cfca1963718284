#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/output/console.h"
#include "lockstep/launch/output/lines.h"
#include "lockstep/launch/output/output_plan.h"

namespace lockstep::launch {

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
