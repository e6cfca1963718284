#pragma once

namespace lockstep {

/// Opens /dev/null in the place of each of standard input, output and error that is closed. Else
/// the next file or socket would take its number, and text for the console would go there.
void open_standard_streams();

/// Puts right what the program that started this one may have left amiss: closed standard streams,
/// and an ignored SIGCHLD, under which no child can be waited for. Call it first in `main`.
void repair_inherited_state();

}  // namespace lockstep
