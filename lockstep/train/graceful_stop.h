#pragma once

#include "lockstep/comm/process_group.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/train/agreement.h"

namespace lockstep {

/// The stop of a training loop after the same step on all ranks, because a signal asked for it:
/// SIGTERM, as schedulers and `lockstep run` send it, SIGINT or SIGUSR1. Exit code 75,
/// ExitCode::kStopped, then tells whoever started the program to start it again.
///
///     lockstep::GracefulStop stop(world);
///     for (...) {
///       ...
///       if (stop.requested()) {
///         snapshot.save(*net, optimizer, {.epoch = epoch, .step = step, .samples = samples});
///         snapshot.wait();
///         return static_cast<int>(lockstep::ExitCode::kStopped);
///       }
///     }
///
/// From the first one on a signal only asks: make it where the loop begins. A second signal, a
/// second or more after the first, ends the process at once.
class GracefulStop {
 public:
  explicit GracefulStop(ProcessGroup world);

  /// Returns whether the ranks stop here. Call it after every step, on all ranks: they meet in a
  /// collective about four times a second, and one rank that got a signal stops all.
  bool requested();

 private:
  Stopwatch watch_;
  Agreement agreement_;
  bool is_requested_ = false;
};

}  // namespace lockstep
