#include "lockstep/cli/train/train_flags.h"

#include <filesystem>
#include <string_view>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/train/options/run_configuration.h"
#include "lockstep/train/options/train_flags.h"
#include "lockstep/train/state/run_state.h"

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

namespace fs = std::filesystem;

template <typename Enum>
std::optional<Enum> value_in(const Configuration& configuration, std::string_view key) {
  for (const auto& [flag, value] : configuration)
    for (const auto& known : names_of(Enum{}))
      if (flag == key && value == concat('"', known.name, '"')) return known.value;
  return std::nullopt;
}

// A run that says nothing of kernels had LibTorch's.
ResumedArithmetic arithmetic_in(const Configuration& configuration) {
  return {.precision = value_in<Precision>(configuration, "precision"),
      .kernels = value_in<nn::Kernels>(configuration, "kernels").value_or(nn::Kernels::kLibTorch)};
}

std::optional<ResumedArithmetic> arithmetic_of_snapshot(const fs::path& snapshot) {
  const fs::path file = snapshot / kStateFile;
  try {
    return arithmetic_in(parse_run_state(text_in(file), file).setup.configuration);
  } catch (const DataError&) {
    return std::nullopt;  // one that is cut short is not resumed from
  }
}

// A run that has no snapshot yet begins anew, but as what its folder says it is.
std::optional<ResumedArithmetic> arithmetic_of_folder(const fs::path& run) {
  const fs::path file = run / "config.toml";
  if (!fs::exists(file)) return std::nullopt;
  try {
    return arithmetic_in(parse_configuration(text_in(file), file.string()));
  } catch (const DataError&) {
    return std::nullopt;  // whoever reads it for its own sake will say so
  }
}

// Of the newest snapshot that can be read.
std::optional<ResumedArithmetic> arithmetic_of_run(const fs::path& run) {
  for (const fs::path& snapshot : snapshots_newest_first(run))
    if (auto arithmetic = arithmetic_of_snapshot(snapshot)) return arithmetic;
  return arithmetic_of_folder(run);
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

ResumedArithmetic resumed_arithmetic(const TrainOptions& options) {
  const ResumeSettings& resume = options.resume;
  if (resume.kind == Resume::kNever) return {};
  std::optional<ResumedArithmetic> found;
  if (resume.kind == Resume::kAuto || resume.again) found = arithmetic_of_run(options.output);
  if (resume.kind == Resume::kFrom) {
    if (!found) found = arithmetic_of_run(resume.from);
    if (!found) found = arithmetic_of_snapshot(resume.from);
  }
  return found.value_or(ResumedArithmetic{});
}

}  // namespace lockstep::cli
