#include "bench/experiment/cell_process.h"

#include <algorithm>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::bench {
namespace {

std::string replaced(std::string text, const std::string& name, const std::string& value) {
  const auto at = text.find(name);
  return at == std::string::npos ? text : text.replace(at, name.size(), value);
}

/// Puts the bench's folder and our path where a command names them.
std::string placed(const std::string& argument, const CellPaths& paths) {
  const std::string folder = std::filesystem::absolute(paths.bench).string();
  return replaced(replaced(argument, kBenchFolder, folder), kThisProgram, paths.program);
}

std::string name_of(const std::string& variable) { return variable.substr(0, variable.find('=')); }

std::vector<std::string> environment_of(const StudyCell& cell) {
  std::vector<std::string> environment = launch::current_environment();
  for (const std::string& variable : cell.environment) {
    std::erase_if(
        environment, [&](const std::string& each) { return name_of(each) == name_of(variable); });
    environment.push_back(variable);
  }
  return environment;
}

std::vector<int> cpus_of(const StudyCell& cell) {
  if (cell.cores == 0) return {};
  std::vector<int> cpus = available_cpus();
  cpus.resize(std::min(cpus.size(), static_cast<std::size_t>(cell.cores)));
  return cpus;
}

}  // namespace

std::vector<std::string> noted_command(const StudyCell& cell) {
  std::vector<std::string> words = cell.command;
  if (!cell.program.empty()) words.insert(words.begin(), cell.program);
  return words;
}

SampleCommand process_of(const StudyCell& cell, const CellPaths& paths,
    const std::filesystem::path& run, const CellLog& log) {
  std::vector<std::string> arguments;
  for (const std::string& argument : cell.command) arguments.push_back(placed(argument, paths));
  arguments.insert(arguments.end(), {"--output", run.string()});
  return {.program = cell.program.empty()
                         ? paths.program
                         : launch::find_program(cell.program, system_variable("PATH")),
      .arguments = std::move(arguments),
      .environment = environment_of(cell),
      .cpus = cpus_of(cell),
      .log = log.file,
      .limit_seconds = log.limit_seconds};
}

}  // namespace lockstep::bench
