#pragma once

namespace lockstep {

/// Notes that this process has called init_process_group().
void note_init();

/// Warns on stderr, once, if a launcher started several ranks and this process uses a
/// default-constructed group without having called init_process_group(): each rank would train a
/// separate copy, without a word.
void warn_if_init_is_forgotten();

}  // namespace lockstep
