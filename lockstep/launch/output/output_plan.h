#pragma once

#include <map>
#include <string>
#include <vector>

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

}  // namespace lockstep::launch
