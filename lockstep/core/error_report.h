#pragma once

#include <exception>

namespace lockstep {

/// Says why this program ends: to the launcher of ours that started it as a rank, which shows one
/// error of all ranks and logs the others; without one on stderr, as `PROGRAM: MESSAGE`.
void report_error(const char* program, const std::exception& error);

}  // namespace lockstep
