#pragma once

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/guardian.h"
#include "lockstep/liveness/spare.h"

namespace lockstep::launch {

struct LaunchOptions;

/// A process that has the program loaded and waits for a rank (liveness/spare.h).
struct Spare {
  ChildProcess process;
  FileDescriptor pipe;  ///< in which its rank's variables go

  /// Makes it a rank: it goes on with these variables.
  void become(const Variables& variables) &&;
};

/// The spares of a node's ranks, one for each at most. They belong to no attempt, and so outlive
/// the one in which they were started.
///
/// Note [Spares]
/// A restart then need not execute the program and load its libraries, which for LibTorch takes
/// longer than all else. A spare has the streams, the cores and the signals of its local rank, and
/// what it writes before it is needed stays in its pipes, as far as these hold it. Its rank's
/// variables come by one more pipe.
class Spares {
 public:
  /// Starts one for each local rank that has none. `mark` is that of the attempts' guardians, which
  /// take over the ones that become ranks.
  void fill(const LaunchOptions& options, const std::string& mark);

  /// Takes the spare of a local rank; none if there is none, or it has ended.
  std::optional<Spare> take(int local_rank);

  /// Returns the ids of all processes that belong to it.
  std::vector<pid_t> pids() const;

 private:
  std::optional<Guardian> guardian_;
  std::map<int, Spare> spares_;  // by local rank
};

}  // namespace lockstep::launch
