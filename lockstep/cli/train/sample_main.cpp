#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/train/mains.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/report/evaluation/evaluation_report.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/strategy/devices.h"
#include "lockstep/train/token_sampling.h"

namespace lockstep::cli {
namespace {

/// A request to `lockstep sample`.
struct SampleCommand {
  std::string run, prompt;
  std::optional<Which> which = {};
  SamplingSettings settings = {};
};

constexpr const char* kSampleDescription =
    R"(Lets a language model that a run has trained go on with a prompt, token by token.
)";

constexpr const char* kSampleExamples = R"(Examples:
  lockstep sample --run runs/book --prompt 'It was'
  lockstep sample --run runs/book --prompt 'It was' --tokens 1000 --temperature 0
  lockstep sample --run runs/gpt2 --prompt '464 2068 7586'  a run with --data tokens: numbers of tokens, and so it prints

Exit codes: 0 done, 2 bad flags, 3 bad weights, 4 disk, device or memory.)";

/// Returns the flags of `lockstep sample`.
const FlagTable<SampleCommand>& sample_flags() {
  using Set = SamplingSettings;
  static const FlagTable<SampleCommand> kTable(
      {.verb = "sample",
          .usage = "lockstep sample --run DIR --prompt TEXT",
          .description = kSampleDescription,
          .footer = kSampleExamples},
      {{"What to sample from",
           {flag("--run", "DIR", "folder of a run with --data text or tokens", &SampleCommand::run)
                   .required(),
               flag("--which", "WHICH", "weights of the run: {}", &SampleCommand::which)
                   .usually("best; last where no epoch was compared"),
               flag("--prompt", "TEXT", "what to go on with", &SampleCommand::prompt).required()}},
          {"How",
              {flag("--tokens", "N", "tokens to add", &SampleCommand::settings, &Set::tokens)
                      .within(1, 1 << 24),
                  flag("--temperature", "X",
                      "divides the scores: less is surer; 0 takes the likeliest token",
                      &SampleCommand::settings, &Set::temperature)
                      .from(0)
                      .to(1e6),
                  flag("--top-k", "N", "draw from the N likeliest tokens", &SampleCommand::settings,
                      &Set::top_k)
                      .within(1, 100'000'000),
                  flag("--seed", "N", "seed of what is drawn", &SampleCommand::settings, &Set::seed)
                      .from(0)}}});
  return kTable;
}

void sample(const SampleCommand& command) {
  const TrainOptions options = evaluation_options(options_of_run(command.run));
  const std::vector<std::int64_t> prompt = prompt_tokens(options.data, command.prompt);
  if (!options.plugin.empty()) nn::load_plugin(options.plugin);
  const Place place = places_of_process(options, choose_device(options), 1, {}).front();
  const WeightsSource weights = weights_of_run(command.run, command.which);
  nn::Model model = trained_model(options, weights.file, place.device);
  std::cerr << "lockstep: sampling from " << weights_text(weights) << '\n';
  const auto show = [&](std::int64_t token) {
    std::cout << shown_token(options.data, token) << std::flush;
  };
  for (const std::int64_t token : prompt) show(token);
  sample_tokens(model, prompt, sequence_length(options), command.settings, show);
  std::cout << '\n';
}

}  // namespace

int sample_main(const std::vector<std::string>& arguments) {
  const GivenFlags given = sample_flags().parse(arguments);
  if (given.asks_help) {
    std::cout << sample_flags().help();
    return static_cast<int>(ExitCode::kDone);
  }
  SampleCommand command;
  sample_flags().read(command, given);
  sample(command);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace lockstep::cli
