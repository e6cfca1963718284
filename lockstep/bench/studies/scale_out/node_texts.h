#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/bench/page/table.h"
#include "lockstep/bench/studies/scale_out/node_cells.h"

namespace lockstep::bench::scale_out {

inline constexpr const char* kNone = "-";

/// Writes a share as `87.50 %`; `-` where there is none.
std::string percent_of(const std::optional<double>& share);

/// Writes the measured efficiency, which of one node is 1, and the predicted one.
std::string efficiency_text(const std::vector<NodeCell>& cells, const NodeCell& nodes);
std::string predicted_text(const std::vector<NodeCell>& cells, const NodeCell& nodes);

/// Gives the cells in which no worker is killed.
std::vector<const NodeCell*> unharmed(const std::vector<NodeCell>& cells);

/// Adds to a table's notes what the marks in it mean, and the reasons that were cut.
void add_marks(page::Table& table, const std::vector<NodeCell>& cells);

}  // namespace lockstep::bench::scale_out
