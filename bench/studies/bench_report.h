#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "bench/studies/bench_request.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench {

/// A bench's folder as it was read: all that is reported comes from its samples.jsonl.
struct BenchReport {
  std::filesystem::path folder;
  std::vector<Study> studies;
  std::vector<Sample> samples;  ///< one for each study, cell and round
  page::Page page;
  std::string torn;  ///< names a line that was left out; empty: none

  /// Counts samples that failed.
  int failures() const;
};

/// Reads bench.json, samples.jsonl and environment.json and makes tables, figures and conclusions.
/// Throws DataError that names the file; a folder without bench.json is not a bench's.
BenchReport read_bench_report(const std::filesystem::path& folder);

/// Writes report.md, report.html, figures/*.svg and, of the study data-parallel,
/// pytorch_results.txt into the folder.
void write_bench_report(const BenchReport& report);

/// Writes tables and conclusions for a terminal; the tables of all samples are left to the page.
std::string bench_text(const BenchReport& report);

/// Writes all estimates as one JSON object on one line.
std::string bench_json(const BenchReport& report);

/// Returns in a few lines with what samples were measured: of a file that `lockstep env --json`
/// could have written what matters, and of the samples when, how evenly and how undisturbed. Says
/// so if the file is missing; one that is not JSON is a DataError.
std::string environment_text(const std::filesystem::path& file, std::span<const Sample> samples);

}  // namespace lockstep::bench
