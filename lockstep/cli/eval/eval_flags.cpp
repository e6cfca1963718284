#include "lockstep/cli/eval/eval_flags.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/core/error.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep::cli {
namespace {

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
          of_run_alone("--model"), of_run("--plugin"), of_run("--num-classes"), of_run("--loss")}};
}

FlagGroup<Command> data_group() {
  return {"On what",
      {of_run_alone("--data"), of_run("--classes"),
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
              .from(0)
              .to(1000),
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

}  // namespace

const FlagTable<EvalCommand>& eval_flags() {
  static const FlagTable<EvalCommand> kTable(
      {.verb = "eval",
          .usage = "lockstep eval --run DIR | --weights FILE --model NAME --data NAME[:DIR]",
          .description = kEvalDescription,
          .footer = kEvalExamples},
      {weights_group(), data_group(), computing_group(), eval_output_group()});
  return kTable;
}

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

}  // namespace lockstep::cli
