#pragma once

#include <array>
#include <csignal>

namespace lockstep {

/// The signals that ask a training to stop.
inline constexpr std::array<int, 3> kStopSignals = {SIGTERM, SIGINT, SIGUSR1};

/// What a training that was stopped says last, on rank 0.
inline constexpr char kStoppedText[] =
    "lockstep: stopped by a signal; start it again with --resume auto to continue\n";

/// Lets stop signals wait for the program that this process becomes next: one that comes while it
/// is loaded is answered by its handle_stop_signals().
void hold_stop_signals();

/// Answers stop signals from now on, and those that were held. Until let_stops_be_saved() there is
/// nothing to save: one ends the process at once, with ExitCode::kStopped.
///
/// Signals that the process ignores stay ignored.
void handle_stop_signals();

/// From now on a stop signal asks the training of this process to end after its step with a last
/// snapshot. The next one, a second or more later, ends the process at once, as it would have
/// without us: a scheduler and a launcher may both pass on the first one.
void let_stops_be_saved();

/// Returns the signal that came; 0 if none did.
int stop_signal();

}  // namespace lockstep
