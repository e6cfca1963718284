#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/stream_mask.h"

namespace lockstep::launch {

/// Says where the workers' output goes.
struct OutputOptions {
  std::string log_dir;                     ///< a folder that is there; empty text: no files
  StreamMask redirects;                    ///< streams that go to a file and not to the terminal
  StreamMask tee;                          ///< streams that go to both
  std::vector<int> shown_ranks;            ///< local ranks whose output is shown; empty: all
  std::string prefix = "[rank ${rank}] ";  ///< of each line when several ranks are shown
  bool append = false;          ///< the folder may hold logs of an earlier run, which are continued
  bool first_inherits = false;  ///< local rank 0 writes to the launcher's own output and error
};

/// Says where one stream of one worker goes.
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

/// Fills in `${rank}`, `${local_rank}` and `${role_name}`.
std::string fill_prefix(std::string pattern, int rank, int local_rank, const std::string& role);

/// Throws InvalidArgument unless the log folder is there, is a folder and, where logs are not
/// continued, is empty.
void check_log_dir(const std::string& log_dir, bool append = false);

}  // namespace lockstep::launch
