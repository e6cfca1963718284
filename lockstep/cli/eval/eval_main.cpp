#include "lockstep/cli/eval/eval_main.h"

#include <iostream>
#include <string_view>

#include "lockstep/cli/eval/eval_flags.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/arithmetic.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/report/evaluation/evaluation_report.h"
#include "lockstep/train/evaluation/evaluate_weights.h"
#include "lockstep/train/evaluation/run_weights.h"
#include "lockstep/train/strategy/devices.h"

namespace lockstep::cli {
namespace {

EvalCommand read_eval(const GivenFlags& given) {
  check_eval(given);
  EvalCommand command;
  if (const auto run = given.find("--run"))
    command.options = evaluation_options(options_of_run(*run));
  eval_flags().read(command, given);
  return command;
}

WeightsSource source_of(const EvalCommand& command) {
  if (command.weights.empty()) return weights_of_run(command.run, command.which);
  return {.file = command.weights, .which = "file", .remark = ""};
}

Place place_of(const TrainOptions& options) {
  const DeviceChoice choice = choose_device(options);
  const std::vector<Place> places = places_of_process(options, choice, 1, {});
  const std::string text = describe(choice, places, 1);
  if (!text.empty()) std::cerr << "lockstep: " << text << '\n';
  return places.front();
}

void choose_arithmetic(TrainOptions& options, const torch::Device& device) {
  const PrecisionRequest asked{
      .is_auto = options.auto_precision, .is_given = true, .precision = options.precision};
  const Computing here{.bf16_speed = bf16_speed(device), .on_accelerators = !device.is_cpu()};
  options.precision = choose_precision(asked, here, std::nullopt).precision;
  if (options.tf32 == Tf32::kAuto) return;
  const bool is_on = options.tf32 == Tf32::kOn;
  allow_tf32(is_on, is_on);
}

void evaluate_and_report(EvalCommand command) {
  TrainOptions& options = command.options;
  if (!options.plugin.empty()) nn::load_plugin(options.plugin);
  const WeightsSource weights = source_of(command);
  const Place place = place_of(options);
  choose_arithmetic(options, place.device);
  std::cerr << "lockstep: evaluating " << bench::weights_text(weights) << '\n';
  const EvaluationResult result =
      evaluate_weights({.options = options,
                           .weights = weights,
                           .split = command.split,
                           .worst = static_cast<std::size_t>(command.worst)},
          place);
  if (!result.warning.empty())
    std::cerr << "lockstep: warning: weights of " << weights.file << ":\n" << result.warning;
  if (!command.output.empty()) bench::write_evaluation_page(result, command.output);
  if (command.json) {
    std::cout << bench::evaluation_json(result) << '\n';
    return;
  }
  std::cout << bench::evaluation_text(result);
  if (!command.output.empty()) std::cout << "\nWritten: " << command.output << '\n';
}

// The trainer's parts begin their messages with the verb that usually has them.
std::string of_eval(const std::string& message) {
  constexpr std::string_view kOther = "train: ";
  return message.starts_with(kOther) ? concat("eval: ", message.substr(kOther.size())) : message;
}

}  // namespace

int eval_main(const std::vector<std::string>& arguments) {
  try {
    const GivenFlags given = eval_flags().parse(arguments);
    if (given.asks_help) {
      std::cout << eval_flags().help();
    } else {
      evaluate_and_report(read_eval(given));
    }
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(of_eval(error.what()));
  } catch (const DataError& error) {
    throw DataError(of_eval(error.what()));
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace lockstep::cli
