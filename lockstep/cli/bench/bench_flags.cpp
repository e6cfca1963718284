#include "lockstep/cli/bench/bench_flags.h"

#include <algorithm>
#include <ctime>
#include <filesystem>

#include <CLI/CLI.hpp>

#include "lockstep/bench/studies/catalogue.h"
#include "lockstep/cli/flags/flag_parser.h"
#include "lockstep/cli/flags/suggest.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/cpu_share.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDescription =
    R"(Measures a study: which way of spreading a training pays on this machine.

Each cell of the study's grid is a run of lockstep train, a process of its own. Rounds take all cells once, in a
drawn order, so that what disturbs the machine for a while does not fall on one cell. A cell that fails is shown
with its reason, and the rest goes on. Stopped at any moment, the same command with the same --output goes on.
)";

constexpr const char* kExamples = R"(Examples:
  lockstep bench --list                             the studies
  lockstep bench data-parallel --list               its cells and their commands; measures nothing
  lockstep bench data-parallel                      about two minutes on two cores
  lockstep bench data-parallel --full --output dp   the whole grid: hours, or a day; may be stopped
  lockstep bench data-parallel --full --output dp   ... and goes on
  lockstep report dp                                tables and figures again, from dp/samples.jsonl

The folder then holds report.html (one file, for a browser), report.md, figures/*.svg, samples.jsonl and
environment.json; data-parallel writes pytorch_results.txt besides, in the form of the study that it repeats.

Exit codes: 0 done, 1 a cell failed, 2 bad flags, 3 bad data, 4 disk, 128+n stopped by signal n: run it again.)";

struct Texts {
  bool quick = false;
  std::optional<int> rounds;
};

void add_flags(CLI::App& app, BenchCommand& command, Texts& texts) {
  use_our_layout(app, "Usage: lockstep bench STUDY [flags], or lockstep bench --list");
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("STUDY", command.name, "a study's name, or all");
  app.add_flag("--quick", texts.quick, "the part of the grid that minutes allow [so it is]");
  app.add_flag("--full", command.request.options.full, "the whole grid of the study");
  app.add_option("--output", command.output)
      ->type_name("DIR")
      ->description(
          "folder for samples and report; one that a bench began is gone on with\n"
          "[bench-STUDY-TIME]");
  app.add_option("--rounds", texts.rounds)
      ->type_name("N")
      ->description("samples of each cell [3; with --quick fewer of slow cells]");
  app.add_option("--data", command.request.options.data)
      ->type_name("NAME[:DIR]")
      ->description("a set for the studies that take it, may be repeated [each its own]")
      ->allow_extra_args(false);
  app.add_option("--nodes", command.request.options.nodes)
      ->type_name("HOST,HOST,...")
      ->description("hosts for studies of several [network namespaces of this machine]")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--pretrained", command.request.options.pretrained)
      ->type_name("FILE")
      ->description("weights that scale-out's VGG19 begins with, with --full [fresh ones]");
  app.add_option("--seed", command.seed)
      ->type_name("N")
      ->description("of the order of cells within a round [42]");
  app.add_flag("--keep-runs", command.keep_runs, "keep the folder of each run");
  app.add_flag("--retry-failed", command.retry_failed, "take samples that failed before again");
  app.add_flag("--list", command.list, "list studies, or the cells of one; measure nothing");
  app.add_flag("--json", command.json, "end stdout with all estimates as one JSON object");
  app.set_help_flag("-h,--help", "print this");
}

std::vector<std::string> study_names() {
  std::vector<std::string> names;
  for (const auto& entry : bench::study_catalogue()) names.push_back(entry.name);
  return names;
}

std::vector<std::string> studies_of(const std::string& name) {
  std::vector<std::string> known = study_names();
  if (name == "all") return known;
  if (bench::find_study(name) != nullptr) return {name};
  known.emplace_back("all");
  throw InvalidArgument(concat(
      "bench: there is no study ", name, did_you_mean(name, known),
      " (lockstep bench --list lists all)"));
}

std::string default_output(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc);
  return concat("bench-", name, "-", text);
}

// A bench may be gone on with from another folder than it was begun in.
std::string with_absolute_folder(const std::string& data) {
  const auto colon = data.find(':');
  if (colon == std::string::npos || colon + 1 == data.size()) return data;
  const auto folder = std::filesystem::absolute(data.substr(colon + 1)).lexically_normal();
  return data.substr(0, colon + 1) + folder.string();
}

void check_taken(const std::string& data, const std::vector<std::string>& studies) {
  std::vector<std::string> known;
  for (const std::string& study : studies) {
    const auto& names = bench::find_study(study)->data;
    known.insert(known.end(), names.begin(), names.end());
  }
  const std::string name = bench::data_name(data);
  check(
      std::find(known.begin(), known.end(), name) != known.end(), "bench: --data: ", name,
      " is no set of ", studies.size() == 1 ? studies.front() : "these studies",
      did_you_mean(name, known));
}

// The quick grid trains another net, which such a file does not fit.
void resolve_pretrained(bench::BenchRequest& request) {
  std::string& file = request.options.pretrained;
  if (file.empty()) return;
  const bool taken = std::any_of(
      request.studies.begin(), request.studies.end(),
      [](const std::string& study) { return bench::find_study(study)->takes_pretrained; });
  check(taken, "bench: --pretrained is for scale-out, and no weights of ", request.studies.front());
  check(request.options.full, "bench: --pretrained is VGG19's, which only --full trains: ", file);
  file = std::filesystem::absolute(file).lexically_normal().string();
}

void resolve(BenchCommand& command, const Texts& texts) {
  auto& options = command.request.options;
  check(!texts.quick || !options.full, "bench: --quick and --full exclude each other");
  check(
      texts.rounds.value_or(1) >= 1 && texts.rounds.value_or(1) <= 1000,
      "bench: --rounds must be 1 to 1000: ", texts.rounds.value_or(0));
  check(
      !command.name.empty() || command.list,
      "bench: name a study, or all (lockstep bench --list lists them)");
  if (!command.name.empty()) command.request.studies = studies_of(command.name);
  options.rounds = texts.rounds.value_or(0);
  options.cores = launch::usable_cpu_count();
  for (std::string& data : options.data) {
    check_taken(data, command.request.studies);
    data = with_absolute_folder(data);
  }
  if (!command.name.empty()) resolve_pretrained(command.request);
  if (command.output.empty()) command.output = default_output(command.name);
}

}  // namespace

std::string bench_help() {
  CLI::App app;
  BenchCommand command;
  Texts texts;
  add_flags(app, command, texts);
  return app.help();
}

std::optional<BenchCommand> parse_bench(const std::vector<std::string>& arguments) {
  CLI::App app;
  BenchCommand command;
  Texts texts;
  add_flags(app, command, texts);
  if (!parse_flags(app, "bench", arguments)) return std::nullopt;
  resolve(command, texts);
  return command;
}

}  // namespace lockstep::cli
