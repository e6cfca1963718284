#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bench/experiment/sample.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench {

/// One line of results as the study's notebook writes them, or as we do.
struct ResultsLine {
  std::string model;  ///< `mnist-small` or `mnist-large`
  int repeat = 1;
  int batch = 128;
  int places = 1;
  std::string way;  ///< serial with one place, dp, ddp; the notebook's are DataParallel's
  double first_seconds = 0;
  double second_seconds = 0;
  bool extrapolated = false;    ///< from a part of an epoch
  bool oversubscribed = false;  ///< more places than cores
};

/// The lines of a file, and what a reader must know of it.
struct ResultsFile {
  std::vector<ResultsLine> lines;
  std::vector<std::string> notes;  ///< a torn line that was left out; models named by order
};

/// Writes a sample that worked as one JSON object without a newline: the notebook's keys
/// (`n_dataset_repeat`, `batch_size`, `n_gpus`, `model_size`, `first epoch time`,
/// `second epoch time`), then ours.
std::string results_line(const Sample& sample);

/// Reads such lines, the notebook's and ours. Lines without `model_size`, as its first ones were,
/// are small and large in turn, as its loop makes them. Unknown keys are ignored; a last line that
/// is torn is left out and noted. Anything else is a DataError that names file, line and key.
ResultsFile parse_results(std::string_view text, const std::string& file);

/// Reads a file of them.
ResultsFile read_results(const std::filesystem::path& path);

/// A file of results and what its columns are called.
struct ResultsSource {
  std::string name;
  ResultsFile file;
};

/// Sets the epoch times of several files side by side: a row for each point of the grid that any of
/// them has, the medians where a file has it several times.
page::Table results_table(const std::vector<ResultsSource>& sources);

}  // namespace lockstep::bench
