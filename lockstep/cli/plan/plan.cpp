#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lockstep/bench/page/page.h"
#include "lockstep/bench/planning/plan_section.h"
#include "lockstep/cli/env/host_facts.h"
#include "lockstep/cli/plan/plan_flags.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/launch/cpu_share.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

int state_copies_by(const std::vector<std::string>& flags) {
  TrainOptions options;
  train_flags().read(options, train_flags().parse(flags));
  return state_copies(options.optimizer);
}

std::string measuring_command(const PlanCommand& command) {
  std::string text = concat("lockstep plan --measure --model ", command.model, " --precision ",
      command.precision, " --cores-a-place ", command.cores_a_place, " --measure-batches ");
  for (std::size_t i = 0; i < command.batches.size(); ++i)
    text += concat(i == 0 ? "" : ",", command.batches[i]);
  if (!command.train_flags.empty()) text += " -- " + joined(command.train_flags, " ");
  return text;
}

/// A folder that goes when it is no longer needed.
class WorkFolder {
 public:
  WorkFolder() {
    std::string name = fs::temp_directory_path() / "lockstep-plan-XXXXXX";
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

plan::ModelProfile measure(const PlanCommand& command) {
  sibling_program("plan", "lockstep-train");
  const WorkFolder folder;
  const int cores = launch::usable_cpu_count();
  const bench::MeasureRequest request{.model = command.model,
      .plugin = command.plugin.empty() ? "" : fs::absolute(command.plugin).string(),
      .data = command.data,
      .precision = command.precision,
      .batches = command.batches,
      .cores = cores,
      .cores_a_place = command.cores_a_place,
      .train_flags = command.train_flags};
  check(command.cores_a_place <= cores, "plan: --cores-a-place is ", command.cores_a_place,
      ", and there are ", cores);
  const bench::ProfileFacts facts{.model = command.model,
      .precision = command.precision,
      .device = concat(environment_facts().at("processor").at("model").get<std::string>(), ", ",
          command.cores_a_place, command.cores_a_place == 1 ? " core" : " cores", " a place"),
      .source = measuring_command(command),
      .state_copies = static_cast<double>(state_copies_by(command.train_flags)),
      .cores = cores / command.cores_a_place};
  return bench::measure_profile(request, facts,
      {.program = sibling_program("plan", "lockstep"), .bench = folder.path()},
      [](const std::string& line) { std::cerr << "lockstep plan: " << line << std::endl; });
}

plan::ModelProfile read_profile_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(concat("plan: --profile: cannot read ", path));
  return plan::parse_profile({std::istreambuf_iterator<char>(file), {}}, path);
}

void write_page(const PlanCommand& command, const bench::page::Section& section) {
  if (command.output.empty()) return;
  replace_file(command.output,
      bench::page::to_html({.title = section.title, .sections = {section}, .environment = ""}));
  std::cout << "The page: " << command.output << "\n";
}

}  // namespace

int plan(const std::vector<std::string>& arguments) {
  auto command = parse_plan(arguments);
  if (!command) {
    std::cout << plan_help();
    return 0;
  }
  const plan::ModelProfile profile =
      command->profile.empty() ? measure(*command) : read_profile_file(command->profile);
  if (!command->save.empty()) {
    replace_file(command->save, plan::profile_text(profile));
    std::cout << "The profile: " << command->save << "\n";
  }
  if (command->measures_only) return 0;
  if (!command->has_within) command->question.machine.within = profile.within;
  const plan::Answer found = plan::answer(profile, command->question);
  const bench::page::Section section = bench::section_of_plan(found);
  std::cout << bench::page::to_text(section);
  write_page(*command, section);
  if (command->json) std::cout << bench::plan_json(found) << "\n";
  return 0;
}

}  // namespace lockstep::cli
