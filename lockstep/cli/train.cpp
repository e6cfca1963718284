#include <filesystem>
#include <system_error>

#include <CLI/CLI.hpp>
#include <signal.h>
#include <unistd.h>

#include "lockstep/cli/flag_parser.h"
#include "lockstep/cli/train_launch.h"
#include "lockstep/cli/train_logs.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/launcher.h"
#include "lockstep/launch/worker_environment.h"

namespace lockstep::cli {
namespace {

std::string train_program() {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string path = self.parent_path() / "lockstep-train";
  if (::access(path.c_str(), X_OK) != 0) throw_errno("train: find", path);
  return path;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

[[noreturn]] void become(const std::string& program, std::vector<std::string> arguments) {
  auto environment = launch::with_allocator_tunables(launch::current_environment());
  arguments.insert(arguments.begin(), program);
  ::execve(program.c_str(), pointers(arguments).data(), pointers(environment).data());
  throw_errno("train: execute", program);
}

}  // namespace

int train(const std::vector<std::string>& arguments) {
  TrainLaunch plan = parse_train_launch(arguments);
  const std::string program = train_program();
  const bool inside_a_launcher = environment("RANK").has_value();
  if (inside_a_launcher || !plan.needs_a_launcher()) become(program, plan.rest);
  keep_logs_with_run(plan);
  launch::LaunchOptions options = plan.options;
  options.program = program;
  options.arguments = plan.rest;
  return launch::launch(options);
}

}  // namespace lockstep::cli
