#include <filesystem>
#include <iostream>

#include "bench/results_file/results_file.h"
#include "bench/studies/bench_report.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/report/page/page.h"

namespace lockstep::cli {
namespace {

void report_bench(const std::string& folder, bool json) {
  const auto report = bench::read_bench_report(folder);
  bench::write_bench_report(report);
  if (json) {
    std::cout << bench::bench_json(report) << "\n";
  } else {
    std::cout << bench::bench_text(report) << "\nWritten again: " << folder << "/report.html, "
              << folder << "/report.md, " << folder << "/figures\n";
  }
}

void report_results(const std::vector<std::string>& paths) {
  std::vector<bench::ResultsSource> sources;
  for (const std::string& path : paths) sources.push_back({path, bench::read_results(path)});
  std::cout << bench::page::to_text(bench::results_table(sources));
}

}  // namespace

int report_measured(std::vector<std::string> arguments) {
  const bool json = arguments.front() == "--json";
  if (json) arguments.erase(arguments.begin());
  if (std::filesystem::is_regular_file(arguments.front())) {
    report_results(arguments);
  } else {
    report_bench(arguments.front(), json);
  }
  return 0;
}

}  // namespace lockstep::cli
