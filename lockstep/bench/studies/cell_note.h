#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/experiment/results.h"

namespace lockstep::bench {

/// Says what a reader must know of a cell's number: that it is oversubscribed, samples that failed,
/// outliers of a value; or why it has none, a long reason cut. `-` if nothing.
std::string cell_note(const CellResult& result, const std::string& value);

/// Lists the reasons that cell_note() cuts, whole: a line for each cell.
std::vector<std::string> whole_reasons(const std::vector<CellResult>& results);

}  // namespace lockstep::bench
