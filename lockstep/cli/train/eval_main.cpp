#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string_view>

#include "lockstep/cli/train/mains.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/arithmetic.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/report/evaluation/evaluation_report.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/options/train_flags.h"
#include "lockstep/train/strategy/devices.h"

namespace lockstep::cli {
namespace {

/// A request to `lockstep eval`.
struct EvalCommand {
  TrainOptions options;  ///< begin with those of the run, if there is one
  std::string run;
  std::string weights;
  std::optional<Which> which = {};
  Split split = Split::kTest;
  std::int64_t worst = 20;
  std::string output;
  bool json = false;
};

using Command = EvalCommand;

constexpr const char* kEvalDescription =
    R"(Evaluates trained weights on a data set: loss and accuracy, of each class too, and which classes are
taken for which; a page with the samples that the model is worst at.

With --run, everything is as the run recorded it, and the scores are those that it recorded for these
weights. Flags given beside it take the place of what it recorded.
)";

constexpr const char* kEvalExamples = R"(Examples:
  lockstep eval --run runs/night                     its best weights on its test images
  lockstep eval --run runs/night --which last --split train --json
  lockstep eval --run runs/night --output night.html the confusion as a map, the worst as pictures
  lockstep eval --weights resnet50.pth --model resnet50 --data images:/data/flowers

Exit codes: 0 done, 2 bad flags, 3 bad data or weights, 4 disk, device or memory.)";

// As `lockstep train` has it.
Flag<Command> of_training(const std::string& name) {
  const auto& all = train_flags().flags();
  const auto found = std::ranges::find_if(
      all, [&](const Flag<TrainOptions>& flag) { return flag.spec.name == name; });
  check(found != all.end(), "eval: train has no flag ", name);
  Flag<Command> own{.spec = found->spec,
      .read = [read = found->read](Command& command, const FlagSpec& spec,
                  const std::string& text) { read(command.options, spec, text); },
      .write = nullptr};
  return own;
}

// The same, where a run has its own.
Flag<Command> of_run(const std::string& name) {
  Flag<Command> own = of_training(name);
  const std::string usual = own.spec.usual.value_or("");
  own.usually(usual.empty() ? "the run's" : concat("the run's, else ", usual));
  return own;
}

// The same, where nothing but a run can say it.
Flag<Command> of_run_alone(const std::string& name) {
  return of_training(name).usually("the run's");
}

FlagGroup<Command> weights_group() {
  return {"What to evaluate",
      {flag("--run", "DIR", "folder of a run: its weights, model, data and precision",
           &Command::run),
          flag("--which", "WHICH", "weights of the run: {}", &Command::which)
              .usually("best; last where no epoch was compared"),
          flag("--weights", "FILE", "these weights instead: .safetensors, or Python's .pt or .pth",
              &Command::weights),
          of_run_alone("--model"), of_run("--plugin"), of_run("--num-classes"), of_run("--task"),
          of_run("--loss")}};
}

FlagGroup<Command> data_group() {
  return {"On what",
      {of_run_alone("--data"), of_run("--classes"), of_run("--sequence-length"), of_run("--inputs"),
          of_run("--targets"),
          flag("--split", "PART",
              "{}; val: what --val-split held out, or a folder val; train: not augmented",
              &Command::split),
          of_run("--image-size"), of_run("--bad-images"), of_training("--workers")}};
}

FlagGroup<Command> computing_group() {
  return {"How to compute", {of_run("--batch-size"), of_run("--precision"), of_training("--device"),
                                of_run("--tf32"), of_run("--kernels")}};
}

FlagGroup<Command> eval_output_group() {
  return {"What it shows",
      {flag("--worst", "N", "samples with the largest losses, for --output and --json",
           &Command::worst)
              .within(0, 1000),
          flag("--output", "FILE", "write a page too: one .html file, with pictures",
              &Command::output),
          flag_on("--json", "print one JSON object instead of tables", &Command::json)}};
}

void check_page_file(const std::string& output) {
  namespace fs = std::filesystem;
  check(output.ends_with(".html"), "eval: --output must be a file that ends in .html: ", output);
  const fs::path folder = fs::absolute(output).parent_path();
  check(fs::is_directory(folder), "eval: --output: there is no folder ", folder.string());
}

/// Returns the flags of `lockstep eval`. Those that `lockstep train` has too are its own.
const FlagTable<EvalCommand>& eval_flags() {
  static const FlagTable<EvalCommand> kTable(
      {.verb = "eval",
          .usage = "lockstep eval --run DIR | --weights FILE --model NAME --data NAME[:DIR]",
          .description = kEvalDescription,
          .footer = kEvalExamples},
      {weights_group(), data_group(), computing_group(), eval_output_group()});
  return kTable;
}

/// Throws InvalidArgument for a value that a flag does not take, and unless the flags name weights,
/// model and data, and a page can be written.
void check_eval(const GivenFlags& given) {
  Command values;
  eval_flags().read(values, given);
  const bool has_run = given.has("--run"), has_weights = given.has("--weights");
  check(has_run || has_weights, "eval: needs --run DIR, or --weights FILE with --model and --data");
  check(has_run || (given.has("--model") && given.has("--data")),
      "eval: --weights FILE does not say what it is; give --model and --data, or the --run");
  check(!given.has("--which") || (has_run && !has_weights),
      "eval: --which chooses among the weights of a --run, and --weights names them");
  check(!given.has("--worst") || given.has("--output") || given.has("--json"),
      "eval: --worst is for --output and --json, which show the samples");
  if (const auto output = given.find("--output")) check_page_file(*output);
}

EvalCommand read_eval(const GivenFlags& given) {
  check_eval(given);
  EvalCommand command;
  if (const auto run = given.find("--run"))
    command.options = evaluation_options(options_of_run(*run));
  eval_flags().read(command, given);
  check(command.options.task != TaskKind::kProgram || !given.has("--worst"),
      "eval: --worst shows samples by their losses, and a model that computes its loss itself "
      "gives "
      "none for single samples; leave it out");
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
  const Computing here{.bf16_speed = options.auto_precision ? bf16_speed(device) : 0,
      .on_accelerators = !device.is_cpu()};
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
  std::cerr << "lockstep: evaluating " << weights_text(weights) << '\n';
  const EvaluationResult result =
      evaluate_weights({.options = options,
                           .weights = weights,
                           .split = command.split,
                           .worst = static_cast<std::size_t>(command.worst)},
          place);
  if (!result.warning.empty())
    std::cerr << "lockstep: warning: weights of " << weights.file << ":\n" << result.warning;
  if (!result.data_remark.empty()) std::cerr << "lockstep: warning: " << result.data_remark << '\n';
  if (!command.output.empty()) write_evaluation_page(result, command.output);
  if (command.json) {
    std::cout << evaluation_json(result) << '\n';
    return;
  }
  std::cout << evaluation_text(result);
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
