#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/cli/bench_flags.h"
#include "bench/experiment/runner.h"
#include "bench/results_file/results_file.h"
#include "bench/studies/bench_report.h"
#include "bench/studies/bench_request.h"
#include "bench/study/training_run.h"
#include "lockstep/cli/env.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/report/page/page.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnvironmentFile = "environment.json";

void list_studies() {
  std::cout << std::left << std::setw(20) << "STUDY"
            << "WHAT IT MEASURES\n";
  for (const auto& entry : bench::study_catalogue()) {
    std::cout << std::setw(20) << entry.name << entry.about << "\n";
  }
  std::cout << std::setw(20) << "all"
            << "each of them but ways, in this order\n";
}

void list_cells(const BenchCommand& command) {
  for (const bench::Study& study : command.request.make()) {
    std::cout << study.name << ": " << study.cells.size() << " cells, "
              << (study.worth ? "at most " : "")
              << (study.rounds == 1 ? "one round" : std::to_string(study.rounds) + " rounds")
              << "\n";
    for (const bench::StudyCell& cell : study.cells) {
      std::cout << "\n"
                << cell.id << ": on " << cell.cores << (cell.cores == 1 ? " core" : " cores");
      if (cell.on_cores && cell.places > cell.cores) std::cout << ", oversubscribed";
      if (cell.rounds > 0) std::cout << ", rounds: at most " << cell.rounds;
      const std::string program = cell.program.empty() ? "lockstep" : cell.program;
      std::cout << "\n  " << program << " " << shell_text(cell.command) << "\n";
    }
  }
}

// All data first: whatever trains takes longer.
void prepare_studies(BenchCommand& command) {
  bench::StudyOptions& options = command.request.options;
  std::vector<const bench::StudyEntry*> studies;
  for (const std::string& name : command.request.studies)
    studies.push_back(bench::find_study(name));
  for (const auto* study : studies)
    if (study->prepare != nullptr) study->prepare(options, command.output);
  const bench::CellPaths paths{
      .program = sibling_program("bench", "lockstep"), .bench = command.output};
  for (const auto* study : studies) {
    if (study->is_of_user() && options.ways.images == 0) {
      study->explore(options, paths);
      bench::write_request(command.output, command.request);  // it is found out once
    }
    if (study->pretrain != nullptr) study->pretrain(options, paths);
  }
}

// A bench that could not begin leaves no file that would block the next try.
void take_back(const fs::path& output, bool made) {
  std::error_code ignored;
  fs::remove(output / bench::kRequestFile, ignored);
  fs::remove(output / kEnvironmentFile, ignored);
  fs::remove_all(output / "runs", ignored);
  if (made) fs::remove(output, ignored);  // unless data are in it
}

// Before hours of work, not after.
void prepare_bench(BenchCommand& command) {
  const fs::path output = command.output;
  check(!fs::exists(output) || fs::is_directory(output),
      "bench: --output is not a folder: ", command.output);
  const auto before = bench::read_request(output);
  bool made = false;
  if (before) {
    bench::check_continues(*before, command.request);
    command.request.options.ways = before->options.ways;
    command.request.options.pretrains = before->options.pretrains;
    command.request.options.work = before->options.work;
    command.is_fitted = false;
  } else {
    check(!fs::exists(output) || fs::is_empty(output),
        "bench: --output holds files already, and no bench: ", command.output,
        "; name a new or empty folder, or leave --output out");
    made = fs::create_directories(output);
  }
  bench::write_request(output, command.request);
  replace_file(output / kEnvironmentFile,
      environment_facts().dump(2, ' ', false, Facts::error_handler_t::replace) + "\n");
  try {
    prepare_studies(command);
  } catch (const StoppedError&) {
    throw;  // it has begun, and will go on
  } catch (const std::exception&) {
    if (!before) take_back(output, made);
    throw;
  }
}

// Says at once which program is missing in this build, not after the first cells have failed.
void check_programs(const std::vector<bench::Study>& studies) {
  const std::pair<const char*, const char*> programs[] = {
      {"train", "lockstep-train"}, {"collectives", "lockstep-collectives"}};
  for (const bench::Study& study : studies)
    for (const bench::StudyCell& cell : study.cells)
      for (const auto& [verb, program] : programs)
        if (std::ranges::find(cell.command, verb) != cell.command.end())
          sibling_program("bench", program);
}

std::optional<double> budget_left(const BenchCommand& command, const Stopwatch& watch) {
  if (command.budget == 0) return std::nullopt;
  return std::max(0.0, command.budget - watch.seconds());
}

// 0, or the code of the first study that did not go well; a signal ends all.
int measure_studies(const BenchCommand& command, const Stopwatch& watch) {
  int code = 0;
  for (const bench::Study& study : command.request.make()) {
    const bench::RunnerResult result =
        bench::run_study(study, {.output = command.output,
                                    .program = sibling_program("bench", "lockstep"),
                                    .seed = command.seed,
                                    .cores = command.request.options.cores,
                                    .budget_seconds = budget_left(command, watch),
                                    .keep_runs = command.keep_runs,
                                    .retry_failed = command.retry_failed,
                                    .say = {}});
    if (result.signal != 0) return result.exit_code();
    if (code == 0) code = result.exit_code();
  }
  return code;
}

// Of a new bench a first round tells how long rounds are here. Where they are much shorter than was
// expected, the samples begin anew with more work. Returns as measure_studies().
int measure_first_round(BenchCommand& command, const Stopwatch& watch) {
  BenchCommand first = command;
  first.request.options.rounds = 1;
  const Stopwatch round;
  const int code = measure_studies(first, watch);
  const double seconds = round.seconds();
  const int before = command.request.options.work;
  if (code != 0 ||
      !bench::refit_to_budget(command.request, seconds, command.budget - watch.seconds()))
    return code;
  std::cerr << "lockstep bench: a round took " << format_duration(seconds)
            << ", so samples begin anew with " << command.request.options.work / before
            << " times the work" << std::endl;
  // Data are made for the work, too.
  for (const char* const name : {bench::kSamplesFile, "runs", "data"})
    fs::remove_all(fs::path(command.output) / name);
  bench::write_request(command.output, command.request);
  prepare_studies(command);
  return 0;
}

void report_outcome(const BenchCommand& command, int code) {
  const auto report = bench::read_bench_report(command.output);
  bench::write_bench_report(report);
  // After a signal no tables are wanted.
  if (code < 128) std::cout << bench::bench_text(report) << "\n";
  std::cout << "The report: " << command.output << "/report.html, " << command.output
            << "/report.md\n";
  if (code >= 128) {
    std::cerr << "lockstep bench: stopped; the same command with --output " << command.output
              << " continues\n";
  } else if (code != 0) {
    std::cerr << "lockstep bench: " << report.failures()
              << " samples failed; the tables give the reasons, runs/*/*.log the output\n";
  }
  if (command.json) std::cout << bench::bench_json(report) << "\n";
  std::cout.flush();
}

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
  std::cout << page::to_text(bench::results_table(sources));
}

}  // namespace

int bench(const std::vector<std::string>& arguments) {
  auto command = parse_bench(arguments);
  if (!command) {
    std::cout << bench_help();
    return 0;
  }
  if (command->list) {
    if (command->name.empty()) {
      list_studies();
    } else {
      list_cells(*command);
    }
    return 0;
  }
  check_programs(command->request.make());
  const Stopwatch watch;
  prepare_bench(*command);
  int code = command->is_fitted ? measure_first_round(*command, watch) : 0;
  if (code < 128) code = measure_studies(*command, watch);
  report_outcome(*command, code);
  return code;
}

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
