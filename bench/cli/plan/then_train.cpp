#include "bench/cli/plan/then_train.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <string_view>

#include "bench/planning/way_flags.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/train/train_launch.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

// The two that the fastest is taken from: a prediction of ways that are alike may be wrong.
constexpr int kConfirmed = 2;

// What the choice decides.
constexpr std::array<std::string_view, 9> kDecided{"--parallel", "--places", "--nproc-per-node",
    "--batch-size", "--stages", "--schedule", "--chunks", "--balance", "--stages-per-place"};
// What a few steps are measured with is given by the plan itself; the rest changes no step, as
// does nothing that the launcher takes.
constexpr std::array<std::string_view, 19> kNotMeasured{"--model", "--data", "--precision",
    "--plugin", "--output", "--resume", "--epochs", "--max-steps", "--max-time", "--json",
    "--dry-run", "--profile", "--tensorboard", "--progress", "--snapshot-interval", "--keep",
    "--snapshot-copies", "--snapshot-required", "--eval-metric"};
// Ways of one process refuse them, and could not be compared.
constexpr std::array<const char*, 6> kOfReplicas{"--sync-batch-norm", "--shard-optimizer",
    "--comm-hook", "--bucket-mb", "--find-unused-parameters", "--backend"};

template <std::size_t Count>
bool is_among(const std::array<std::string_view, Count>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Words words_without(const GivenFlags& given, const auto& is_dropped) {
  Words words;
  for (const GivenFlag& flag : given.flags) {
    if (!is_dropped(*flag.spec)) words.insert(words.end(), flag.words.begin(), flag.words.end());
  }
  return words;
}

int most_places(const GivenFlags& given) {
  for (const char* const flag : {"--places", "--nproc-per-node"}) {
    const auto text = given.find(flag);
    if (!text || *text == "auto" || *text == "cpu") continue;
    const auto number = parse_number<int>(*text);
    check(number && *number >= 1, "train: with --parallel auto ", flag,
        " must be a number of places: ", printable(*text));
    return *number;
  }
  return usable_cpu_count();
}

std::vector<int> up_to(int most) {
  std::vector<int> counts;
  for (int count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

}  // namespace

void plan_for_training(PlanCommand& command) {
  check(command.profile.empty() && command.device.empty() && !command.measures_only,
      "plan: --train measures this machine: leave out --profile, --device and --measure");
  const GivenFlags given = train_flags().parse(command.train_flags);
  check_way_is_open(given);
  for (const char* const flag : kOfReplicas)
    check(!given.has(flag), "train: ", flag,
        " is for --parallel ddp, and --parallel auto compares all ways: choose ddp, or leave it "
        "out");
  TrainOptions options;
  train_flags().read(options, given);
  command.model = given.find("--model").value_or(options.model);
  command.data =
      given.find("--data").value_or(train_flags().spec("--data").usual.value_or(command.data));
  command.precision = given.find("--precision").value_or(command.precision);
  command.plugin = given.find("--plugin").value_or("");
  command.question.batch = static_cast<double>(options.batch_size);
  command.question.nodes = {1};
  command.question.places = up_to(most_places(given));
  command.confirmed = std::max(command.confirmed, kConfirmed);
  command.training =
      words_without(given, [](const FlagSpec& flag) { return is_among(kDecided, flag.name); });
  command.train_flags = words_without(given, [](const FlagSpec& flag) {
    return flag.is_for_launcher || is_among(kDecided, flag.name) ||
           is_among(kNotMeasured, flag.name);
  });
}

void become_training(const PlanCommand& command, const plan::Choice& choice) {
  Words words{"train"};
  const Words way = bench::train_flags_of(choice.prediction.way, choice.prediction.batch);
  words.insert(words.end(), command.training.begin(), command.training.end());
  words.insert(words.end(), way.begin(), way.end());
  std::cerr << "lockstep: takes " << describe(choice.prediction.way) << ": " << joined(way, " ")
            << std::endl;
  become("plan", sibling_program("plan", "lockstep"), words);
}

}  // namespace lockstep::cli
