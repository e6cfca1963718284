#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/child_process.h"

namespace lockstep::launch {

/// The facts about a rank that hung, before it was ended.
struct Hang {
  std::string what;                      ///< after the rank's name: `hangs: ...`
  std::string others;                    ///< for what the others wait; may be empty
  std::vector<std::string> frames = {};  ///< of its stack, the innermost first
  std::string log = {};                  ///< with all of it; may be empty
};

/// All that is known of the rank that failed first.
struct Failure {
  int rank = 0;
  int world_size = 1;
  int nodes = 1;
  std::string host;
  pid_t pid = 0;
  ExitStatus status;
  OomKills oom;                         ///< how many more there were since the attempt began
  std::string message;                  ///< from its error file
  std::vector<std::string> last_lines;  ///< of its output
  std::string log;                      ///< where all of it is; may be empty
  std::string message_log;              ///< where its message is, if nothing else is kept
  std::optional<Hang> hang = {};        ///< in place of how it ended
};

/// Returns in one sentence what happened: `rank 1 of 4 (host box, pid 17) was killed by SIGKILL
/// (signal 9)`.
std::string failure_headline(const Failure& failure);

/// Returns that sentence with the rank's own message or, if it left none, with its last lines, each
/// begun by `  | `; then what else is known, begun by `lockstep: `. With one line for what follows
/// from the failure these are at most three lines; the last says where the rest is.
std::string failure_report(const Failure& failure);

/// The file in which a rank may write what failed (TORCHELASTIC_ERROR_FILE). It lies in memory and
/// is reached by a path under /proc, so that nothing is left on a disk however the run ends.
class ErrorFile {
 public:
  ErrorFile();

  /// Returns the path by which other processes of this user open it.
  std::string path() const;

  /// Returns the message that was written; empty if there is none.
  std::string message() const;

 private:
  FileDescriptor file_;
};

/// Takes the message out of torch's error file: `{"message": TEXT}` or `{"message": {"message":
/// TEXT, ...}}`. A text that is not of this form is returned as it is.
std::string error_file_message(const std::string& content);

}  // namespace lockstep::launch
