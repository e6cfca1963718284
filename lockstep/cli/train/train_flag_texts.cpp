#include "lockstep/cli/train/train_flag_texts.h"

#include <CLI/CLI.hpp>

#include "lockstep/cli/flags/flag_parser.h"

namespace lockstep::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  lockstep train                                    mnist-small on Fashion-MNIST, 3 epochs, one rank
  lockstep train --nproc-per-node 2 --precision bf16-mixed
                                                    two ranks, 128 images each a step
  lockstep train --data mnist:/data/mnist --opt sgd --lr 0.05 --lr-scale linear --nproc-per-node 4
  lockstep train --parallel pp --places 2 --chunks 8 --schedule zero-bubble
                                                    the model in two stages, each on half of the cores
  lockstep train --parallel ddp+pp --nproc-per-node 4 --stages 2
                                                    two pipelines of two ranks
  lockstep train --model mnist-large --max-time 30m --output runs/large
  lockstep train --model mnist-large --max-time 2h --output runs/large --resume auto
                                                    go on with that run, from its newest snapshot
  lockstep train --nproc-per-node 2 --dry-run       say what would be done, and stop

Exit codes: 0 done, 2 bad flags, 3 bad data or snapshot, 4 disk or memory, 5 peers lost, 6 loss became NaN or Inf,
75 stopped by a signal with a complete snapshot: run again with --resume auto.)";

void add_what_flags(CLI::App& app, FlagTexts& texts, TrainOptions& options) {
  const char* group = "What to train";
  app.add_option("--model", options.model)
      ->type_name("NAME")
      ->description(
          "toy, mnist-small, mnist-large, resnet18-cifar, resnet18/34/50, vgg11/13/16/19[-bn] "
          "[mnist-small]")
      ->group(group);
  app.add_option("--pretrained", options.pretrained)
      ->type_name("FILE")
      ->description("begin with these weights: .safetensors, or .pt, .pth of Python")
      ->group(group);
  app.add_option("--freeze", texts.freeze)
      ->type_name("PATTERN[,PATTERN]")
      ->description("do not train the parameters of these names, as features.*")
      ->group(group);
  app.add_option("--data", texts.data)
      ->type_name("NAME[:DIR]")
      ->description(
          "fashion-mnist, mnist, cifar10, cifar100, images, mock; from DIR [fashion-mnist]")
      ->group(group);
  app.add_option("--num-classes", options.classes)
      ->type_name("N")
      ->description("of the model [those of the data]")
      ->group(group);
  app.add_option("--repeat", options.repeat)
      ->type_name("N")
      ->description("take the training set N times an epoch [1]")
      ->group(group);
  app.add_option("--seed", options.seed)
      ->type_name("N")
      ->description("start of weights and shuffling [42]")
      ->group(group);
}

void add_parallel_flags(CLI::App& app, FlagTexts& texts, TrainOptions& options) {
  const char* group = "How to spread it";
  app.add_option("--parallel", texts.parallel)
      ->type_name("HOW")
      ->description("serial, dp, ddp, mp, pp, ddp+mp, ddp+pp [ddp if there is more than one rank]")
      ->group(group);
  app.add_option("--places", options.places)
      ->type_name("N")
      ->description("compute in N places of this process: equal sets of cores [2 if HOW needs it]")
      ->group(group);
  app.add_option("--nproc-per-node", texts.nproc_per_node)
      ->type_name("N")
      ->description("start N ranks here; auto: as many as cores [1]")
      ->group(group);
  app.add_flag(
         "--sync-batch-norm", options.sync_batch_norm,
         "let batch norm layers see the batches of all ranks, for ddp")
      ->group(group);
  app.add_option("-b,--batch-size", options.batch_size)
      ->type_name("N")
      ->description("samples a step on each replica [128]")
      ->group(group);
  app.add_option("--precision", texts.precision)
      ->type_name("P")
      ->description("32, bf16-mixed, 16-mixed [32]")
      ->group(group);
  app.add_option("--backend", options.backend)
      ->type_name("NAME")
      ->description("auto, shm, gloo [auto]")
      ->group(group);
}

void add_pipeline_flags(CLI::App& app, FlagTexts& texts) {
  const char* group = "How to cut the model (mp, pp, ddp+mp, ddp+pp)";
  app.add_option("--stages", texts.pipeline.stages)
      ->type_name("N")
      ->description("of each replica [one on each rank or in each place]")
      ->group(group);
  app.add_option("--chunks", texts.pipeline.chunks)
      ->type_name("N")
      ->description("micro-batches of a batch, for pp and ddp+pp [8]")
      ->group(group);
  app.add_option("--schedule", texts.schedule)
      ->type_name("NAME")
      ->description("sequential, gpipe, 1f1b, interleaved, zero-bubble [1f1b]")
      ->group(group);
  app.add_option("--stages-per-place", texts.pipeline.stages_a_worker)
      ->type_name("N")
      ->description("for interleaved and zero-bubble [interleaved 2, else 1]")
      ->group(group);
  app.add_option("--balance", texts.balance)
      ->type_name("BY")
      ->description("cut so that stages are equal by time, size, count [time]")
      ->group(group);
  app.add_option("--checkpoint", texts.checkpoint)
      ->type_name("WHEN")
      ->description("compute activations again: never, except-last, always [never]")
      ->group(group);
  app.add_flag(
         "--deferred-batch-norm", texts.pipeline.deferred_batch_norm,
         "let running statistics follow the whole batch")
      ->group(group);
}

void add_step_flags(CLI::App& app, TrainOptions& options) {
  const char* group = "Optimizer";
  app.add_option("--grad-accum-steps", options.grad_accum_steps)
      ->type_name("N")
      ->description("batches of each replica that make one optimizer step [1]")
      ->group(group);
  app.add_option("--smoothing", options.smoothing)
      ->type_name("X")
      ->description("of the labels in training, from 0 to 1 [0]")
      ->group(group);
}

void add_limit_flags(CLI::App& app, FlagTexts& texts, TrainOptions& options) {
  const char* group = "How long (the first that is reached ends it)";
  app.add_option("--epochs", texts.epochs)
      ->type_name("N")
      ->description("passes over the data [3, unless another limit is given]")
      ->group(group);
  app.add_option("--max-steps", texts.max_steps)
      ->type_name("N")
      ->description("optimizer steps")
      ->group(group);
  app.add_option("--max-time", texts.max_time)
      ->type_name("TIME")
      ->description("of training, restarts included: 90s, 30m, 2h, 1h30m")
      ->group(group);
  app.add_option("--limit-train-batches", options.limit_train_batches)
      ->type_name("N")
      ->description("batches of an epoch, at most")
      ->group(group);
}

void add_output_flags(
    CLI::App& app, FlagTexts& texts, TrainOptions& options, TrainCommand& command) {
  const char* group = "What it tells";
  app.add_option("--output", options.output)
      ->type_name("DIR")
      ->description(
          "the run's folder: new, empty, or with --resume auto that of a run "
          "[runs/TIME-MODEL-HOW]")
      ->group(group);
  app.add_option("--val-interval", options.val_interval)
      ->type_name("N")
      ->description("epochs between evaluations; 0: only at the end; or never [1]")
      ->transform([](const std::string& word) { return word == "never" ? "-1" : word; })
      ->group(group);
  app.add_option("--log-interval", options.log_interval)
      ->type_name("N")
      ->description("steps between lines of metrics.jsonl [50]")
      ->group(group);
  app.add_option("--progress", texts.progress)
      ->type_name("STYLE")
      ->description("auto, bar, line, none [auto: bar on a terminal]")
      ->group(group);
  app.add_flag("--dry-run", command.dry_run, "check everything, print the plan, write nothing")
      ->group(group);
  app.add_flag("--json", command.json, "end stdout with the summary as one JSON object")
      ->group(group);
  app.set_help_flag("-h,--help", "print this")->group(group);
}

// The launcher takes these out before a rank sees them; they stand here for the help.
void add_launch_flags(CLI::App& app, FlagTexts& texts) {
  const char* group = "How ranks are started";
  app.add_option("--log-dir", texts.log_dir)
      ->type_name("DIR")
      ->description("an empty folder for the other ranks' output")
      ->group(group);
  app.add_option("--max-restarts", texts.max_restarts)
      ->type_name("N")
      ->description(
          "starts of all ranks again, from the newest snapshot, when one dies [3; one rank: 0]")
      ->group(group);
  app.add_option("--grace-period", texts.grace_period)
      ->type_name("SECONDS")
      ->description("from a passed-on signal to SIGKILL [30]")
      ->group(group);
  app.add_flag("--no-pin", texts.no_pin, "let each rank use all cores")->group(group);
}

}  // namespace

void add_train_flags(CLI::App& app, FlagTexts& texts, TrainCommand& command) {
  use_our_layout(app, "Usage: lockstep train [flags]");
  app.description("Trains a model on labelled images, on one rank or on several.\n");
  app.footer(kExamples);
  add_what_flags(app, texts, command.options);
  add_loading_flags(app, texts.loading);
  add_parallel_flags(app, texts, command.options);
  add_pipeline_flags(app, texts);
  add_launch_flags(app, texts);
  add_optimizer_flags(app, texts.optimizer);
  add_step_flags(app, command.options);
  add_average_flags(app, texts.averages);
  add_limit_flags(app, texts, command.options);
  add_snapshot_flags(app, texts.snapshots);
  add_output_flags(app, texts, command.options, command);
}

}  // namespace lockstep::cli
