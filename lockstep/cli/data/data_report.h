#pragma once

#include <ostream>

#include "lockstep/data/check/check_set.h"

namespace lockstep::cli {

/// Prints what a check found, for people.
void print_report(std::ostream& out, const data::SetReport& report);

/// Prints it as one JSON object on one line.
void print_json_report(std::ostream& out, const data::SetReport& report);

}  // namespace lockstep::cli
