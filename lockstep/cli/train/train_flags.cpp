#include "lockstep/cli/train/train_flags.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep::cli {
namespace {

void check_ranks_started(const GivenFlags& given, const TrainSurroundings& around) {
  const auto asked = given.find("--nproc-per-node");
  if (!asked || *asked == "auto" || *asked == "cpu") return;
  const int ranks = parse_number<int>(*asked).value_or(0);
  check(ranks > 0, "train: --nproc-per-node must be a number above 0, or auto: ", *asked);
  check(ranks == around.local_world_size, "train: --nproc-per-node is ", ranks, ", but ",
      around.local_world_size,
      " were started here; start them with: lockstep train --nproc-per-node ", ranks);
}

// What one flag means depends on whether another was given, or on the ranks.
void resolve(TrainOptions& options, const GivenFlags& given, const TrainSurroundings& around) {
  check(!given.has("--snapshot-interval") || !given.has("--snapshot-overhead"),
      "train: --snapshot-interval and --snapshot-overhead both say when to save; give one");
  const bool is_several = around.world_size > 1 || options.places.value_or(1) > 1;
  if (!given.has("--parallel") && is_several) options.parallel = Parallel::kDdp;
  const bool has_other_limit = given.has("--max-steps") || given.has("--max-time");
  if (!given.has("--epochs") && has_other_limit) options.limits.epochs.reset();
  // Ranks that a launcher started again continue where they were, whatever their first start did.
  options.resume.again = around.restart_count > 0;
  if (options.resume.again && options.resume.kind == Resume::kNever)
    options.resume.kind = Resume::kAuto;
}

}  // namespace

std::string train_help() { return train_flags().help(); }

TrainCommand read_train_flags(const GivenFlags& given, const TrainSurroundings& surroundings) {
  check_ranks_started(given, surroundings);
  TrainCommand command{.options = {},
      .dry_run = given.has("--dry-run"),
      .json = given.has("--json"),
      .names_precision = given.has("--precision"),
      .names_kernels = given.has("--kernels")};
  check(!command.dry_run || !command.json,
      "train: --json prints the summary of a run, and --dry-run makes none");
  train_flags().read(command.options, given);
  resolve(command.options, given, surroundings);
  check_options(command.options, surroundings.world_size);
  if (command.options.output.empty())
    command.options.output = default_output(command.options, surroundings.unix_time);
  return command;
}

std::optional<TrainCommand> parse_train_flags(
    const std::vector<std::string>& arguments, const TrainSurroundings& surroundings) {
  const GivenFlags given = train_flags().parse(arguments);
  if (given.asks_help) return std::nullopt;
  return read_train_flags(given, surroundings);
}

}  // namespace lockstep::cli
