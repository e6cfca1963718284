#pragma once

namespace lockstep {

/// From now on SIGTERM, SIGINT and SIGUSR1 ask the training of this process to end after its step
/// with a last snapshot. The same signal once more, a second or more later, ends the process at
/// once, as it would have without us: a scheduler and a launcher may both pass on the first one.
///
/// Signals that the process ignores stay ignored.
void handle_stop_signals();

/// Returns the signal that came; 0 if none did.
int stop_signal();

}  // namespace lockstep
