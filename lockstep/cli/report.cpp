#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>

#include "lockstep/bench/run_report.h"
#include "lockstep/cli/flag_parser.h"
#include "lockstep/cli/verbs.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDescription = R"(Shows what runs of lockstep train recorded, as plain tables.

One run: a row for each epoch, its restarts joined to one curve; between the rows stands where it
went on and what had been lost. Several runs: side by side. A run may still be under way.
)";

constexpr const char* kExamples = R"(Examples:
  lockstep report runs/first
  lockstep report runs/first runs/second
  lockstep report runs/first --json                  every number, for a script)";

struct Request {
  std::vector<std::string> runs;
  bool json = false;
};

/// Reads the command line; nothing if it asked for help, which is then printed.
std::optional<Request> request_of(const std::vector<std::string>& arguments) {
  Request request;
  CLI::App app;
  use_our_layout(app, "Usage: lockstep report RUN... [--json]");
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("RUN", request.runs, "folder of a run")->required();
  app.add_flag("--json", request.json, "print one JSON object");
  app.set_help_flag("-h,--help", "print this");
  if (parse_flags(app, "report", arguments)) return request;
  std::cout << app.help();
  return std::nullopt;
}

}  // namespace

int report(const std::vector<std::string>& arguments) {
  const auto request = request_of(arguments);
  if (!request) return 0;
  std::vector<bench::RunReport> runs;
  for (const std::string& run : request->runs) runs.push_back(bench::read_run_report(run));
  std::cout << (request->json ? bench::report_json(runs) + "\n" : bench::report_text(runs));
  return 0;
}

}  // namespace lockstep::cli
