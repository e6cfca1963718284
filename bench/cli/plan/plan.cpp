#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "bench/cli/plan/offers.h"
#include "bench/cli/plan/plan_flags.h"
#include "bench/planning/plan_section.h"
#include "bench/statistics/load_meter.h"
#include "bench/study/training_run.h"
#include "lockstep/cli/env.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/plan/answer.h"
#include "lockstep/plan/model_profile.h"
#include "lockstep/report/page/page.h"
#include "lockstep/train/options/train_flags.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// A share of the cores from which others are named.
constexpr double kDisturbing = 0.05;

int state_copies_by(const std::vector<std::string>& flags) {
  TrainOptions options;
  train_flags().read(options, train_flags().parse(flags));
  return state_copies(options.optimizer);
}

// That measures the same batches again.
std::string measuring_command(const PlanCommand& command, const plan::ModelProfile& profile) {
  const plan::MeasuredTraining& training = *profile.training;
  std::vector<std::string> batches;
  for (const auto& point : profile.layers.front().forward.points())
    batches.push_back(concat(point.batch));
  bench::Words words = bench::words_of("lockstep", "plan", "--measure", "--model", command.model,
      "--data", training.data, "--precision", command.precision, "--cores-a-place",
      training.cores_a_place, "--measure-rounds", command.measure_rounds, "--measure-batches",
      joined(batches, ","));
  if (!training.plugin.empty())
    bench::add_words(words, bench::words_of("--plugin", training.plugin));
  if (!training.flags.empty()) bench::add_words(words, bench::words_of("--", training.flags));
  return shell_text(words);
}

/// A folder that goes when it is no longer needed.
class WorkFolder {
 public:
  WorkFolder() {
    std::string name = temporary_folder() + "/lockstep-plan-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr)
      throw std::system_error(errno, std::generic_category(), concat("plan: cannot make ", name));
    path_ = name;
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// What is asked, and its changes.
std::vector<plan::Question> questions_of(const PlanCommand& command) {
  std::vector<plan::Question> questions{command.question};
  for (const std::string& text : command.scenarios)
    questions.push_back(plan::changed(command.question, text).question);
  return questions;
}

bool is_about_one_place(const plan::Question& question) {
  return *std::ranges::max_element(question.places) * *std::ranges::max_element(question.nodes) ==
         1;
}

// What is asked about one place alone, or about devices with links of their own, needs no second
// place to be measured.
int cores_of(const PlanCommand& command) {
  const bool is_moved = !command.devices.empty() && command.save.empty();
  const bool is_alone =
      !command.measures_only &&
      (is_moved || std::ranges::all_of(questions_of(command), is_about_one_place));
  return is_alone ? command.cores_a_place : usable_cpu_count();
}

// A profile that is kept has all; else only what the question, or one of its changes, is about.
std::vector<bench::MeasuredAs> left_out_of(const PlanCommand& command, int cores) {
  if (command.measures_only || !command.save.empty() || !command.profile.empty()) return {};
  return bench::not_asked_about(questions_of(command), cores / command.cores_a_place);
}

bench::MeasureRequest request_of(const PlanCommand& command) {
  return {.model = command.model,
      .plugin = command.plugin.empty() ? "" : fs::absolute(command.plugin).string(),
      .data = command.data,
      .precision = command.precision,
      .batches = command.batches,
      .cores = cores_of(command),
      .cores_a_place = command.cores_a_place,
      .rounds = command.measure_rounds,
      .left_out = left_out_of(command, cores_of(command)),
      .train_flags = command.train_flags,
      .seconds = 60 * command.measure_minutes};
}

std::string place_of_this_machine(const PlanCommand& command) {
  return concat(environment_facts().at("processor").at("model").get<std::string>(), ", ",
      command.cores_a_place, command.cores_a_place == 1 ? " core" : " cores", " a place");
}

void say(const std::string& line) { std::cerr << "lockstep plan: " << line << std::endl; }

// With the command that measures it, and what trains alike.
plan::ModelProfile described(
    plan::ModelProfile profile, const PlanCommand& command, const bench::MeasureRequest& request) {
  profile.training = plan::MeasuredTraining{
      request.plugin, request.data, request.cores_a_place, request.train_flags};
  profile.source = measuring_command(command, profile);
  return profile;
}

// What was measured is kept after each training, and whoever stops it is told so.
plan::ModelProfile measure_and_keep(const PlanCommand& command,
    const bench::MeasureRequest& request, const bench::ProfileFacts& facts,
    const bench::CellPaths& paths) {
  bool is_kept = false;
  const auto keep = [&](const plan::ModelProfile& profile) {
    if (command.save.empty()) return;
    replace_file(command.save, plan::profile_text(described(profile, command, request)));
    is_kept = true;
  };
  if (!command.save.empty())
    say(concat("keeps in ", command.save, " what it has after each training"));
  try {
    return described(bench::measure_profile(request, facts, paths, {.say = say, .keep = keep}),
        command, request);
  } catch (const StoppedError&) {
    if (is_kept)
      say(concat("stopped; ", command.save, " has what was measured so far, for --profile ",
          command.save));
    throw;
  }
}

plan::ModelProfile measure(PlanCommand& command, const bench::CellPaths& paths) {
  const bench::MeasureRequest request = request_of(command);
  check(command.cores_a_place <= request.cores, "plan: --cores-a-place is ", command.cores_a_place,
      ", and there are ", request.cores);
  const bench::ProfileFacts facts{.model = command.model,
      .precision = command.precision,
      .device = place_of_this_machine(command),
      .source = "",
      .state_copies = static_cast<double>(state_copies_by(command.train_flags)),
      .cores = request.cores / command.cores_a_place};
  const bench::LoadMeter load;
  plan::ModelProfile profile = measure_and_keep(command, request, facts, paths);
  const double others = load.read().other_share;
  if (others >= kDisturbing) {
    command.remark = concat("Others used ", std::lround(100 * others),
        " % of the cores while this was measured: a quiet machine gives better figures.");
    say(command.remark);
  }
  return profile;
}

std::string text_of_file(const std::string& path, const char* flag) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(concat("plan: ", flag, ": cannot read ", path));
  return {std::istreambuf_iterator<char>(file), {}};
}

// What the flags say of the training is what the profile is of, and becomes that where they say
// nothing.
void be_as(
    const std::string& of_profile, const char* flag, const std::string& path, std::string& given) {
  check(given.empty() || given == of_profile, "plan: --profile ", printable(path), " is of ",
      printable(of_profile), ", not of ", flag, ' ', printable(given));
  given = of_profile;
}

plan::ModelProfile read_profile_file(PlanCommand& command) {
  const std::string& path = command.profile;
  const bool is_file = !command.takes_shipped && fs::is_regular_file(path);
  const auto shipped = is_file ? std::nullopt : shipped_profile(path);
  if (!shipped && !fs::exists(path))
    throw DataError(concat("plan: --profile: there is no file ", printable(path),
        "; the program has profiles of ", joined(shipped_models(), ", ")));
  plan::ModelProfile profile =
      plan::parse_profile(shipped ? *shipped : text_of_file(path, "--profile"), path);
  be_as(profile.model, "--model", path, command.model);
  // A data sheet has a rate for each precision.
  profile = in_asked_precision(std::move(profile), command);
  be_as(profile.precision, "--precision", path, command.precision);
  train_as_measured(profile, command);
  return profile;
}

std::optional<RunProfile> profile_beside(const PlanCommand& command) {
  if (command.beside.empty()) return std::nullopt;
  const std::string path = fs::path(command.beside) / "profile" / "profile.json";
  return read_profile(text_of_file(path, "--beside"), path);
}

template <typename Change>
plan::Answer answer_to(const std::vector<Offer>& offers, const Change& change) {
  std::vector<plan::Answer> answers;
  for (const Offer& offer : offers)
    answers.push_back(plan::answer(offer.profile, change(offer.question)));
  return plan::merged(std::move(answers));
}

// Of the ways that cannot be told apart, those that a training here would tell of.
std::size_t offered(const plan::Answer& answer, const PlanCommand& command) {
  const bool is_here = command.devices.empty() && answer.profile.training &&
                       !answer.question.ways.settings.is_pytorch &&
                       answer.profile.device == place_of_this_machine(command);
  if (!is_here) return 0;
  const std::vector<std::size_t> order = bench::confirmable(answer, request_of(command));
  return static_cast<std::size_t>(std::ranges::count_if(order, [&](std::size_t number) {
    return std::ranges::find(answer.equals, number) != answer.equals.end();
  }));
}

bench::PlanReport report_of(
    const PlanCommand& command, const std::vector<Offer>& offers, const bench::CellPaths& paths) {
  bench::PlanReport report{
      .answer = answer_to(offers, [](const plan::Question& question) { return question; })};
  for (const Offer& offer : offers)
    report.machines.push_back({offer.profile, offer.question.machine});
  report.explains = command.explains;
  report.remark = command.remark;
  report.beside = profile_beside(command);
  for (const std::string& text : command.scenarios) {
    report.scenarios.push_back({text, answer_to(offers, [&](const plan::Question& question) {
                                  return plan::changed(question, text);
                                })});
  }
  report.offered = offered(report.answer, command);
  report.confirmed = bench::confirm(
      report.answer, static_cast<std::size_t>(command.confirmed), request_of(command), paths, say);
  if (command.confirmed > 0 && report.confirmed.empty())
    report.remark += concat(report.remark.empty() ? "" : " ",
        "Nothing was confirmed: no way that fits is on one node of as many places as are here.");
  return report;
}

void save_profile(const PlanCommand& command, const plan::ModelProfile& profile) {
  if (command.save.empty()) return;
  replace_file(command.save, plan::profile_text(profile));
  std::cout << "The profile: " << command.save << "\n";
}

// It is read later, and by others: it says what was asked, and when.
void write_page(const PlanCommand& command, const page::Section& section) {
  if (command.output.empty()) return;
  page::Page page = bench::page_of_plan(section);
  page.environment = concat(command.asked, "\n", utc_now());
  replace_file(command.output, page::to_html(page));
  std::cout << "The page: " << command.output << "\n";
}

void show(const PlanCommand& command, const bench::PlanReport& report) {
  const page::Section section = bench::section_of_plan(report);
  // A training's standard output is its own.
  (command.trains ? std::cerr : std::cout) << bench::text_of_plan(section);
  write_page(command, section);
  if (command.json) std::cout << bench::plan_json(report) << "\n";
}

// Becomes `lockstep train` with the flags of this choice.
[[noreturn]] void become_training(const PlanCommand& command, const plan::Choice& choice) {
  std::vector<std::string> words{"train"};
  const auto way = bench::train_flags_of(choice.prediction.way, choice.prediction.batch);
  words.insert(words.end(), command.training.begin(), command.training.end());
  words.insert(words.end(), way.begin(), way.end());
  std::cerr << "lockstep: takes " << describe(choice.prediction.way) << ": " << joined(way, " ")
            << std::endl;
  become("plan", sibling_program("plan", "lockstep"), words);
}

void train_by(const PlanCommand& command, const bench::PlanReport& report) {
  const auto pick = bench::final_answer(report).pick;
  check(pick.has_value(), "plan: --train: ", verdict_of(report));
  become_training(command, report.answer.choices[*pick]);
}

}  // namespace

int plan(const std::vector<std::string>& arguments) {
  auto command = parse_plan(arguments);
  if (!command) {
    std::cout << plan_help();
    return 0;
  }
  auto folder = std::make_unique<const WorkFolder>();
  const bench::CellPaths paths{
      .program = sibling_program("plan", "lockstep"), .bench = folder->path()};
  plan::ModelProfile profile =
      command->profile.empty() ? measure(*command, paths) : read_profile_file(*command);
  save_profile(*command, profile);
  if (command->measures_only) return 0;
  const bench::PlanReport report = report_of(*command, offers_of(profile, *command), paths);
  show(*command, report);
  folder.reset();  // before we become another program
  if (command->trains) train_by(*command, report);
  return 0;
}

}  // namespace lockstep::cli
