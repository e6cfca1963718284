#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/bench/experiment/results.h"
#include "lockstep/bench/page/table.h"

namespace lockstep::bench {

/// Gives the id of a study's table of samples: too long for a terminal.
std::string sample_table_id(const std::string& study);

/// Sets every sample of a study with values (name and head of a column), how long it took, the
/// calibration before it, what share of the cores others used meanwhile, and what was odd about it.
page::Table sample_table(
    const Study& study, const std::vector<CellResult>& results,
    const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace lockstep::bench
