#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/experiment/results.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench {

/// Joins the parts of a note by semicolons; empty ones are left out.
std::string noted(std::vector<std::string> parts);

/// Returns what a reader must know about a cell's value: that it is oversubscribed, samples that
/// failed, outliers; or why there is none, a long reason cut. Empty if nothing.
std::string cell_note(const CellResult& result, const std::string& value);

/// Returns the reasons that cell_note() cuts, in full: a line for each cell.
std::vector<std::string> whole_reasons(const std::vector<CellResult>& results);

/// Returns the mark of a cell whose times are extrapolated from a part of an epoch; empty for 1.
std::string extrapolated_note(double epoch_share);

/// Joins the notes of two cells of which `dp` and `ddp` stand in one row.
std::string note_of_both(const std::string& dp, const std::string& ddp);

/// Explains the mark `oversubscribed`: more of these than cores. Empty if no cell has it.
std::string oversubscribed_note(bool any, const std::string& places = "places");

/// Returns the id of a study's table of samples: too long for a terminal.
std::string sample_table_id(const std::string& study);

/// The name of a sample's value and the head of its column.
using SampleColumn = std::pair<std::string, std::string>;

/// Lists every sample of a study with these values, how long it took, the calibration before it,
/// what share of the cores others used meanwhile, and what was odd about it.
page::Table sample_table(const std::string& study, const std::vector<CellResult>& results,
    const std::vector<SampleColumn>& values);

}  // namespace lockstep::bench
