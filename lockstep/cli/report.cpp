#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/report/run/run_report.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReportDescription =
    R"(Shows what runs of lockstep train recorded, or what a bench measured, as plain tables.

One run: a row for each epoch, all its restarts as one curve; lines between the rows say where it
resumed and what had been lost. RUN/report.html has the same, with plots of loss and accuracy.
Several runs: side by side. A run may still be under way.
The folder of a bench: its tables; report.md, report.html and figures/ are written again, all from
its samples.jsonl.
Files of results, as lockstep bench data-parallel and the study that it repeats write them: their
epoch times in one table.
)";

constexpr const char* kReportExamples = R"(Examples:
  lockstep report runs/first
  lockstep report runs/first runs/second
  lockstep report runs/first --json                  every number, for a script
  lockstep report runs/first runs/second --tensorboard events
                                                     for tensorboard --logdir events
  lockstep report bench-dp                           tables and figures again
  lockstep report bench-dp/pytorch_results.txt theirs/pytorch_results.txt
                                                     in one table)";

struct ReportRequest {
  std::vector<std::string> paths;
  bool json = false;
  std::string tensorboard = {};
};

bool is_bench(const std::string& path) {
  return fs::is_regular_file(fs::path(path) / "bench.json");
}

// What a bench measured is read by the program that measures.
[[noreturn]] void report_measured(const ReportRequest& request) {
  std::vector<std::string> words = {"report"};
  if (request.json) words.emplace_back("--json");
  words.insert(words.end(), request.paths.begin(), request.paths.end());
  become("report", sibling_program("report", "lockstep-bench"), words);
}

// The tables are worth printing even where the page cannot be written.
bool write_page(const RunReport& run) {
  try {
    write_run_page(run);
    return true;
  } catch (const std::system_error& error) {
    std::cerr << "lockstep report: warning: no report.html was written: " << error.what() << "\n";
    return false;
  }
}

void write_events(const ReportRequest& request, const std::vector<RunReport>& runs) {
  for (const fs::path& file : write_run_events(runs, request.tensorboard))
    if (!request.json) std::cout << "Written: " << file.string() << "\n";
}

void report_runs(const ReportRequest& request) {
  std::vector<RunReport> runs;
  for (const std::string& run : request.paths) runs.push_back(read_run_report(run));
  std::cout << (request.json ? report_json(runs) + "\n" : report_text(runs));
  for (const RunReport& run : runs) {
    const bool written = write_page(run);
    if (written && !request.json)
      std::cout << "Written: " << (run.folder.path / "report.html").string() << "\n";
  }
  if (!request.tensorboard.empty()) write_events(request, runs);
}

}  // namespace

int report(const std::vector<std::string>& arguments) {
  using R = ReportRequest;
  const FlagTable<R> table({.verb = "report",
                               .usage = "lockstep report RUN... | BENCH | RESULTS... [flags]",
                               .description = kReportDescription,
                               .footer = kReportExamples},
      {{"Arguments",
           {flag("PATH", "", "folders of runs, one of a bench, or files of results", &R::paths)
                   .required()
                   .repeated()}},
          {"Options",
              {flag_on("--json", "print one JSON object; not of files of results", &R::json),
                  flag("--tensorboard", "DIR",
                      "write the curve of each run into DIR/NAME as an event file of TensorBoard",
                      &R::tensorboard)}}});
  const auto request = table.request(arguments, std::cout);
  if (!request) return 0;
  const auto& paths = request->paths;
  const auto count = [&](bool (*holds)(const std::string&)) {
    return static_cast<std::size_t>(std::count_if(paths.begin(), paths.end(), holds));
  };
  const auto benches = count(is_bench);
  const auto files = count([](const std::string& path) { return fs::is_regular_file(path); });
  const bool several_kinds =
      (benches > 0 && paths.size() > 1) || (files > 0 && files < paths.size());
  check(!several_kinds,
      "report: takes folders of runs, or one folder of a bench, or files of results; these are ",
      benches, " of a bench, ", files, " files and ", paths.size() - benches - files, " others");
  check(!request->json || files == 0, "report: --json is not for files of results");
  check(request->tensorboard.empty() || benches + files == 0,
      "report: --tensorboard is for runs of lockstep train");
  if (benches + files > 0) report_measured(*request);
  report_runs(*request);
  return 0;
}

}  // namespace lockstep::cli
