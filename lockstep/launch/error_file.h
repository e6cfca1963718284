#pragma once

#include <string>

#include "lockstep/core/file_descriptor.h"

namespace lockstep::launch {

/// Is the file in which a worker may say what failed (TORCHELASTIC_ERROR_FILE). It lies in memory
/// and is reached by a path under /proc, so that nothing is left on a disk however the run ends.
class ErrorFile {
 public:
  ErrorFile();

  /// Gives the path by which other processes of this user open it.
  std::string path() const;

  /// Returns the message that was written, or nothing's empty text.
  std::string message() const;

 private:
  FileDescriptor file_;
};

/// Takes the message out of torch's error file: `{"message": TEXT}` or `{"message": {"message":
/// TEXT, ...}}`. A text that is not of this form is returned as it is.
std::string error_file_message(const std::string& content);

}  // namespace lockstep::launch
