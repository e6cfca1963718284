#pragma once

#include <string>

#include "lockstep/bench/experiment/results.h"

namespace lockstep::bench {

/// Says what a reader must know of a cell's number: that it is oversubscribed, samples that failed,
/// outliers of a value; or why it has none. `-` if nothing.
std::string cell_note(const CellResult& result, const std::string& value);

}  // namespace lockstep::bench
