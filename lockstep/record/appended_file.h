#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <sys/stat.h>

#include "lockstep/core/file_descriptor.h"

namespace lockstep {

/// A file of records, each appended by one write, so that a reader never sees a part of one. What a
/// full disk does not take waits in memory and goes before the next record: no training ends for
/// it, and nothing is lost. A file that has lost its name takes nothing: std::system_error.
class AppendedFile {
 public:
  /// Creates the file; it must not exist yet, unless `goes_on`: then records come after those that
  /// it has. `verb` begins messages. Throws std::system_error; DataError for a link, and for what
  /// is no regular file.
  AppendedFile(std::string verb, std::string path, bool goes_on = false);

  /// Returns the last bytes of a file that goes on, so many at most.
  std::string tail(std::size_t most) const;

  /// Writes this before the next record.
  void put_before(std::string_view bytes) { waiting_ += bytes; }

  /// Appends a record, or keeps it; then `take_warning` says so.
  void append(std::string_view record);

  /// Writes what waits. Throws std::system_error when the disk does not take it.
  void flush();

  /// Returns why records wait, once for each time that they begin to; empty when there is nothing
  /// new.
  std::string take_warning();

 private:
  void check_name() const;
  /// Returns the number of the error that left something waiting, or 0.
  int write_waiting();

  std::string verb_;
  std::string path_;
  FileDescriptor file_;
  struct stat facts_ {};
  std::string waiting_;
  bool is_late_ = false;
  std::string warning_;
};

}  // namespace lockstep
