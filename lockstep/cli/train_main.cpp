// Trains as one rank of a run; `lockstep train` starts as many of them as asked.

#include <chrono>
#include <iostream>

#include "lockstep/cli/train_flags.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/train/dry_run.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {
namespace {

int number_or(const char* name, int otherwise) {
  return static_cast<int>(environment_number(name).value_or(otherwise));
}

TrainSurroundings surroundings() {
  const int world_size = number_or("WORLD_SIZE", 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {
      .world_size = world_size,
      .local_world_size = number_or("LOCAL_WORLD_SIZE", world_size),
      .unix_time = std::chrono::duration_cast<std::chrono::seconds>(now).count()};
}

void train(const TrainCommand& command, const std::vector<std::string>& command_line) {
  const ProcessGroup world = init_process_group({.backend = command.options.backend});
  Trainer trainer(command.options, world, command_line);
  const RunSummary summary = trainer.run();
  if (world.rank() != 0) return;
  std::cout << epoch_table(summary) << "The run's files are in " << command.options.output << '\n';
  if (command.json) std::cout << to_json(summary) << '\n';
  std::cout.flush();
}

int body(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  const TrainSurroundings around = surroundings();
  const bool speaks = number_or("RANK", 0) == 0;
  const auto command = parse_train_flags(arguments, around);
  if (!command) {
    if (speaks) std::cout << train_help();
  } else if (command->dry_run) {
    if (speaks) {
      std::cout << plan_text(dry_run(command->options, around.world_size, around.local_world_size));
    }
  } else {
    std::vector<std::string> command_line = {"lockstep", "train"};
    command_line.insert(command_line.end(), arguments.begin(), arguments.end());
    train(*command, command_line);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace
}  // namespace lockstep::cli

int main(int count, char** values) {
  return lockstep::run_program("lockstep", lockstep::cli::body, count, values);
}
