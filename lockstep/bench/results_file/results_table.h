#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/page/table.h"
#include "lockstep/bench/results_file/results_file.h"

namespace lockstep::bench {

/// A file of results and what its columns are called.
struct ResultsSource {
  std::string name;
  ResultsFile file;
};

/// Sets the epoch times of several files side by side: a row for each point of the grid that any of
/// them has, the medians where a file has it several times.
page::Table results_table(const std::vector<ResultsSource>& sources);

}  // namespace lockstep::bench
