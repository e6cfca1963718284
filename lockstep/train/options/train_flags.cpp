#include "lockstep/train/options/train_flags.h"

#include <algorithm>

#include "lockstep/core/backend_names.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/nn/models/catalogue.h"
#include "lockstep/snapshot/snapshot_interval.h"

namespace lockstep {
namespace {

using Options = TrainOptions;
using Group = FlagGroup<TrainOptions>;
using Text = const std::string&;

// Upper limits. Products of several of them fit into 64 bits.
constexpr double kMostEpochs = 1'000'000, kMostSteps = 1'000'000'000'000;
constexpr double kMostBatches = 100'000'000, kMostClasses = 100'000'000, kMostRepeats = 100'000,
                 kMostTokens = 1 << 24;
constexpr double kMostStages = 1024, kMostChunks = 10'000;

constexpr const char* kExamples = R"(Examples:
  lockstep train                                    mnist-small on Fashion-MNIST, 3 epochs, one rank
  lockstep train --nproc-per-node 2 --precision auto
                                                    two ranks, each with 128 images per step
  lockstep train --data mnist:/data/mnist --opt sgd --lr 0.05 --lr-scale linear --nproc-per-node 4
  lockstep train --parallel pp --places 2 --chunks 8 --schedule zero-bubble
                                                    the model in two stages, each on half the cores
  lockstep train --parallel ddp+pp --nproc-per-node 4 --stages 2
                                                    two pipelines of two ranks
  lockstep train --model mnist-large --max-time 30m --output runs/large
  lockstep train --model mnist-large --max-time 2h --output runs/large --resume auto
                                                    continue that run from its newest snapshot
  lockstep train --nproc-per-node 2 --dry-run       show what would be done, and stop

Exit codes: 0 done, 2 bad flags, 3 bad data or snapshot, 4 disk or memory, 5 peers lost, 6 loss became NaN or Inf,
75 stopped by a signal with a complete snapshot: run again with --resume auto.)";

void read_data(Options& options, const FlagSpec& flag, Text text) {
  const auto colon = text.find(':');
  check(colon + 1 != text.size(), flag.verb, ": ", flag.name,
      " has no folder after the colon: ", text);
  options.data.name = text.substr(0, colon);
  options.data.directory.clear();
  if (colon != std::string::npos) options.data.directory = text.substr(colon + 1);
}

FlagValue written_data(const Options& options) {
  const DataSource& data = options.data;
  return data.directory.empty() ? data.name : data.name + ":" + data.directory;
}

Group model_group() {
  return {"What to train",
      {flag("--model", "NAME",
           joined(nn::model_names()) + ", one of --plugin, or FILE.pt2 of Python's torch.export",
           &Options::model),
          flag("--plugin", "FILE", "shared library with models of your own (docs/plugins.md)",
              &Options::plugin)
              .may_change(),
          flag("--pretrained", "FILE",
              "start from these weights: .safetensors, or Python's .pt or .pth",
              &Options::pretrained)
              .may_change(),
          flag("--freeze", "PATTERN[,PATTERN]",
              "parameters that are not trained, by name: features.*", &Options::freeze),
          flag_by<Options>("--data", "NAME[:DIR]",
              "fashion-mnist, mnist, cifar10, cifar100, images, mock, mock:constant, mock:fresh or "
              "one of --plugin; in the folder DIR; tensors, tokens, text: files and folders with "
              "commas between them",
              read_data, written_data),
          flag("--classes", "NAME,NAME",
              "of images: only these class folders, numbered in this order", &Options::data,
              &DataSource::classes)
              .usually("all, numbered by name"),
          flag("--sequence-length", "T", "tokens of a sample of tokens or text", &Options::data,
              &DataSource::sequence_length)
              .within(1, kMostTokens)
              .usually("as many as our language models take"),
          flag("--inputs", "NAME,NAME", "of tensors: those that the model takes, in this order",
              &Options::data, &DataSource::inputs)
              .usually("all that are no targets"),
          flag("--targets", "NAME,NAME", "of tensors: those that are to be learned", &Options::data,
              &DataSource::targets)
              .usually("target, targets, label, labels, y, target.*, label.*"),
          flag("--num-classes", "N", "classes of the model", &Options::classes)
              .within(1, kMostClasses)
              .usually("those of the data"),
          flag("--dropout", "X", "of our language models: share of the numbers that training drops",
              &Options::dropout)
              .fraction()
              .unless_usual(),
          flag("--repeat", "N", "go through the training set N times an epoch", &Options::repeat)
              .within(1, kMostRepeats),
          flag("--seed", "N", "seed of the initial weights, of shuffling and of augmentation",
              &Options::seed)
              .from(0)}};
}

void read_workers(Options& options, const FlagSpec& flag, Text text) {
  options.loading.workers.reset();
  if (text != flag.other_word) read_value(flag, text, options.loading.workers);
}

void read_cache(Options& options, const FlagSpec& flag, Text text) {
  try {
    options.loading.cache_decoded = parse_bytes(text);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(flag.verb, ": ", flag.name, ": ", error.what()));
  }
}

Group image_group() {
  using Set = LoadingSettings;
  return {"How images are read",
      {flag("--augment", "HOW", "augmentation of training images: {}", &Options::loading,
           &Set::augment),
          flag("--image-size", "N", "height and width that the model sees", &Options::loading,
              &Set::image_size)
              .within(1, 16384)
              .usually("images 224; others as they are"),
          flag("--val-split", "X", "share of the training set to validate on, drawn by the seed",
              &Options::loading, &Set::val_split)
              .fraction(),
          flag("--bad-images", "WHAT",
              "on files that cannot be decoded: {}; skip takes another image", &Options::loading,
              &Set::bad_images)
              .may_change(),
          flag("--workers", "N", "threads of each rank that prepare batches", &Options::loading,
              &Set::workers)
              .read_by(read_workers)
              .may_change()
              .letter("-j")
              .within(0, 256)
              .or_word("auto")
              .usually("auto: half of its cores, 0 for one core"),
          flag_by<Options>("--cache-decoded", "BYTES",
              "for images: memory of each rank for decoded images, such as 2G; later epochs do not "
              "decode them",
              read_cache,
              [](const Options& options) { return written_value(options.loading.cache_decoded); })
              .may_change()
              .unless_usual()}};
}

void read_timeout(Options& options, const FlagSpec& flag, Text text) {
  constexpr double kLongest = 1e7;  // a third of a year
  const double seconds = parse_duration(text);
  check(seconds >= 0.001 && seconds <= kLongest, flag.verb, ": ", flag.name,
      " must be from 0.001s to ", kLongest, "s: ", text);
  options.timeout = seconds;
}

FlagValue written_seconds(const std::optional<double>& seconds) {
  return seconds ? FlagValue(text_of(*seconds) + "s") : FlagValue();
}

void read_precision(Options& options, const FlagSpec& flag, Text text) {
  options.auto_precision = flag.word(text) == "auto";
  options.precision = Precision::k32;
  if (!options.auto_precision) read_value(flag, text, options.precision);
}

// Not where it is LibTorch: so it was in every run before there was a choice.
FlagValue written_kernels(const Options& options) {
  const auto who = options.kernels;
  return who == nn::Kernels::kLibTorch ? FlagValue() : written_value(who);
}

std::vector<std::string> precision_words() {
  auto words = all_names<Precision>();
  words.emplace_back("auto");
  return words;
}

// A number of places, or what they are.
void read_places(Options& options, const FlagSpec& flag, Text text) {
  options.place_devices.clear();
  if (text.find_first_of(":,") == std::string::npos) return read_value(flag, text, options.places);
  read_value(flag, text, options.place_devices);
  options.places = static_cast<int>(options.place_devices.size());
}

FlagValue written_places(const Options& options) {
  if (!options.place_devices.empty()) return written_value(options.place_devices);
  return written_value(options.places);
}

void read_comm_hook(Options& options, const FlagSpec& flag, Text text) {
  try {
    options.gradients.comm_hook = parse_comm_hook(text);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(flag.verb, ": ", flag.name, error.what()));
  }
}

Group spreading_group() {
  return {"How to distribute it",
      {flag("--parallel", "HOW", "{}; auto: measures, and takes the fastest", &Options::parallel)
              .may_change()
              .usually("serial; ddp if there is more than one rank"),
          flag("--device", "TYPE",
              "auto, cpu, cuda or another accelerator; auto: GPUs where LibTorch can use them",
              &Options::device)
              .may_change()
              .unless_usual(),
          flag("--places", "WHERE",
              "places in this process: their number (accelerators, or equal sets of its cores), "
              "or their names: cuda:0,cuda:1",
              &Options::places)
              .read_by(read_places)
              .written_by(written_places)
              .may_change()
              .within(1, kMostStages)
              .or_word("devices such as cuda:0,cuda:1")
              .usually("2 if HOW needs it"),
          // How many `auto` is depends on --device, too: the launcher asks for its text.
          flag_by<Options>("--nproc-per-node", "N",
              "start N ranks on this machine; auto: one per GPU, else one per core")
              .for_launcher()
              .usually(1),
          flag_on("--share-devices",
              "ranks of this host share its accelerators, and meet by way of its memory: NCCL "
              "takes no two ranks on one GPU",
              &Options::share_devices)
              .may_change()
              .unless_usual(),
          flag_on("--sync-batch-norm", "for ddp: batch norm over the batches of all ranks",
              &Options::sync_batch_norm),
          flag("--bucket-mb", "X",
              "for ddp: MiB of gradients from which a bucket is sent; the first has 1 MiB",
              &Options::gradients, &GradientSettings::bucket_mb)
              .may_change()
              .above(0)
              .to(1'000'000)
              .usually(25),
          flag_by<Options>("--comm-hook", "HOW",
              "for ddp and fsdp: how gradients are sent: none, fp16, bf16; for ddp also "
              "powersgd[:RANK[:STEP]], which is exact before STEP",
              read_comm_hook,
              [](const Options& options) {
                return FlagValue(comm_hook_text(options.gradients.comm_hook));
              })
              .unless_usual(),
          flag_on("--find-unused-parameters",
              "for ddp: parameters that a backward pass does not reach have no gradient, instead "
              "of ending the run",
              &Options::gradients, &GradientSettings::find_unused_parameters)
              .may_change()
              .unless_usual(),
          flag("--batch-size", "N", "samples per step on each replica", &Options::batch_size)
              .letter("-b")
              .within(1, kMostBatches),
          flag("--precision", "P", "{}; auto: bf16-mixed where that is fast", &Options::precision)
              .read_by(read_precision)
              .one_of(precision_words()),
          flag("--tf32", "HOW",
              "let NVIDIA's GPUs round float32 products to TF32: {}; auto: only in convolutions",
              &Options::tf32)
              .unless_usual(),
          flag_on("--cudnn-benchmark",
              "let cuDNN time its kernels for each new shape of a convolution, and take the "
              "fastest; runs may then differ in their last digits",
              &Options::cudnn_benchmark)
              .unless_usual(),
          flag("--kernels", "WHOSE",
              "whose kernels compute layers on the CPU, such as convolutions, norms and attention: "
              "{}; auto: the faster",
              &Options::kernels)
              .written_by(written_kernels),
          flag_on("--keep-denormals",
              "do not count numbers below 1.2e-38 as zero; processors compute with them many times "
              "slower",
              &Options::keep_denormals)
              .unless_usual(),
          flag("--backend", "NAME", "{}", &Options::backend).may_change().one_of(backend_names()),
          flag_by<Options>("--timeout", "TIME",
              "how long a rank waits for the others: at the start, and in each collective",
              read_timeout, [](const Options& options) { return written_seconds(options.timeout); })
              .may_change()
              .usually("5m")}};
}

// Whether layers have such names is known once the model is there.
void read_checkpoint(Options& options, const FlagSpec& /*flag*/, Text text) {
  const auto names = names_of(Checkpoint{});
  const auto* const known = std::ranges::find(names, text, &EnumName<Checkpoint>::name);
  const bool is_pattern = known == names.end();
  options.pipeline.checkpoint = is_pattern ? Checkpoint::kAlways : known->value;
  options.pipeline.checkpoint_layers = is_pattern ? text : "";
}

FlagValue written_checkpoint(const Options& options) {
  const PipelineSettings& settings = options.pipeline;
  return settings.checkpoint_layers.empty() ? written_value(settings.checkpoint)
                                            : settings.checkpoint_layers;
}

Group stages_group() {
  using Set = PipelineSettings;
  TrainOptions piped;
  piped.parallel = Parallel::kPp;
  return {"How to cut the model (mp, pp, ddp+mp, ddp+pp)",
      {flag("--stages", "N", "stages of each replica", &Options::pipeline, &Set::stages)
              .may_change()
              .within(1, kMostStages)
              .usually("one on each rank or in each place"),
          flag("--chunks", "N", "for pp and ddp+pp: micro-batches per batch, at most --batch-size",
              &Options::pipeline, &Set::chunks)
              .may_change()
              .within(1, kMostChunks)
              .usually(chunks_of(piped)),
          flag("--schedule", "NAME", "{}", &Options::pipeline, &Set::schedule)
              .may_change()
              .usually(name_of(schedule_of(piped))),
          flag("--stages-per-place", "N",
              "for interleaved and zero-bubble: stages on each rank or place", &Options::pipeline,
              &Set::stages_a_worker)
              .may_change()
              .within(1, kMostStages)
              .usually("interleaved 2, else 1"),
          flag("--balance", "BY", "what to balance over the stages: {}", &Options::pipeline,
              &Set::balance)
              .may_change()
              .unless_usual(),
          flag_by<Options>("--checkpoint", "WHEN",
              "recompute activations in backward, stage by stage or layer by layer: never, "
              "except-last, always; or, for serial and ddp, a pattern of layers: transformer.h.*",
              read_checkpoint, written_checkpoint)
              .may_change()
              .unless_usual(),
          flag_on("--deferred-batch-norm",
              "running statistics follow the whole batch, not each micro-batch", &Options::pipeline,
              &Set::deferred_batch_norm)}};
}

// Without readers: a rank sees none of them.
Group launch_group() {
  Group group{"How ranks are started", {}};
  for (const auto& flag : launch_flags().flags()) {
    if (!flag.read) continue;  // --help
    group.flags.push_back({.spec = flag.spec, .read = nullptr, .write = nullptr});
    group.flags.back().for_launcher();
  }
  return group;
}

void read_milestones(Options& options, const FlagSpec& flag, Text text) {
  auto& milestones = options.optimizer.schedule.decay_milestones;
  milestones.clear();
  for (const std::string& piece : split(text, ',')) {
    const auto epoch = parse_number<std::int64_t>(piece);
    check(epoch && *epoch > 0 && static_cast<double>(*epoch) <= kMostEpochs, flag.verb, ": ",
        flag.name, " must be a comma-separated list of epochs: ", text);
    milestones.push_back(*epoch);
  }
}

FlagValue written_milestones(const Options& options) {
  std::vector<std::string> epochs;
  for (const std::int64_t epoch : options.optimizer.schedule.decay_milestones)
    epochs.push_back(std::to_string(epoch));
  return written_value(epochs);
}

// Whether they are in range is for check_optimizer() to say.
void read_betas(Options& options, const FlagSpec& flag, Text text) {
  const auto pieces = split(text, ',');
  const auto first = parse_number<double>(pieces.front());
  const auto second = parse_number<double>(pieces.back());
  check(pieces.size() == 2 && first && second, flag.verb, ": ", flag.name,
      " must be two numbers, such as ", *flag.usual, ": ", text);
  options.optimizer.betas = AdamBetas{*first, *second};
}

FlagValue text_of_betas(const std::optional<AdamBetas>& betas) {
  return betas ? FlagValue(text_of(betas->first) + "," + text_of(betas->second)) : FlagValue();
}

template <typename Member>
Flag<Options> rate_flag(const char* name, const char* value, const char* help, Member member) {
  return flag(name, value, help, &Options::optimizer, &OptimizerSettings::schedule, member);
}

// Whether a plugin has another name is known once it is loaded.
void read_task(Options& options, const FlagSpec& /*flag*/, Text text) {
  const auto names = names_of(TaskKind{});
  const auto* const known = std::ranges::find(names, text, &EnumName<TaskKind>::name);
  const bool is_ours = known != names.end();
  options.task = is_ours ? known->value : TaskKind::kProgram;
  options.plugin_task = is_ours ? "" : text;
}

FlagValue written_task(const Options& options) {
  return options.plugin_task.empty() ? written_value(options.task) : options.plugin_task;
}

EmaSettings& ema_of(Options& options, const FlagSpec& flag) {
  check(options.ema.has_value(), flag.verb, ": ", flag.name, " needs --model-ema");
  return *options.ema;
}

Group optimizer_group() {
  using Set = OptimizerSettings;
  constexpr auto kPath = &Options::optimizer;
  const auto read_kind = [](Options& options, const FlagSpec& flag, Text text) {
    OptimizerKind kind{};
    read_value(flag, text, kind);
    options.optimizer = default_settings(kind);
  };
  const auto sgd = default_settings(OptimizerKind::kSgd);
  const auto adamw = default_settings(OptimizerKind::kAdamW);
  return {"Optimizer",
      {// Before its settings: it brings their defaults.
          flag("--opt", "NAME", "{}", kPath, &Set::kind).read_by(read_kind),
          flag("--momentum", "X", "for sgd", kPath, &Set::momentum)
              .fraction()
              .usually(sgd.momentum),
          flag("--weight-decay", "X", "weight decay: L2, decoupled for adamw", kPath,
              &Set::weight_decay)
              .from(0)
              .usually(concat("adam, sgd ", sgd.weight_decay, "; adamw ", adamw.weight_decay)),
          flag("--weight-decay-on", "WHAT",
              "parameters that decay: {}; weights leaves out biases and norm layers", kPath,
              &Set::weight_decay_on),
          flag("--opt-eps", "X", "for adam and adamw: added to the root of the squares' average",
              kPath, &Set::eps)
              .above(0)
              .usually(concat("adam ", usual_eps(OptimizerKind::kAdam), "; adamw ",
                  usual_eps(OptimizerKind::kAdamW))),
          flag_by<Options>("--opt-betas", "X,X",
              "for adam and adamw: shares that the averages of gradients and of their squares "
              "keep, each at least 0 and below 1",
              read_betas,
              [](const Options& options) { return text_of_betas(options.optimizer.betas); })
              .usually(text_of(text_of_betas(AdamBetas()))),
          flag("--clip-grad", "X", "limit for the norm of all gradients together", kPath,
              &Set::clip_grad)
              .above(0)
              .usually("no limit"),
          flag("--reshard", "WHEN",
              "fsdp: when parameters that backward needs are given up (ZeRO stage 3, 2): {}",
              &Options::gradients, &GradientSettings::reshard)
              .may_change()
              .unless_usual(),
          flag("--replicas", "N",
              "fsdp: copies of the model, each shared out over ranks that follow one another",
              &Options::gradients, &GradientSettings::replicas)
              .within(1, 1'000'000)
              .may_change()
              .unless_usual(),
          flag_on("--shard-optimizer",
              "divide the optimizer's state and work among the replicas (ZeRO stage 1)", kPath,
              &Set::sharded)
              .may_change(),
          flag("--grad-accum-steps", "N", "batches per replica in one optimizer step",
              &Options::grad_accum_steps)
              .within(1, kMostEpochs),
          flag_by<Options>("--task", "NAME",
              concat("what is learned: ", joined(all_names<TaskKind>()), ", or one of --plugin"),
              read_task, written_task)
              .usually("what the targets of the data say"),
          flag_by<Options>(
              "--loss", "NAME",
              joined(nn::loss_names()) +
                  " (of one-hot labels) or one of --plugin; of a regression mse, l1, huber; of a "
                  "reconstruction mse, l1, bce; evaluations measure it, too",
              [](Options& options, const FlagSpec&, Text text) { options.loss = text; },
              [](const Options& options) {
                // The usual one of all tasks that have it.
                return options.loss == nn::kCrossEntropy ? FlagValue()
                                                         : written_value(options.loss);
              })
              .usually("the task's first"),
          flag("--smoothing", "X", "label smoothing of the training loss, for cross-entropy",
              &Options::smoothing)
              .fraction()}};
}

Group rate_group() {
  using Set = OptimizerSettings;
  using Lr = LrSettings;
  const auto adam = default_settings(OptimizerKind::kAdam).lr;
  const auto sgd = default_settings(OptimizerKind::kSgd).lr;
  const LrSchedule schedule;
  const PlateauRule plateau;
  return {"Learning rate",
      {flag(
           "--lr", "X", "learning rate at the start of the schedule", &Options::optimizer, &Set::lr)
              .above(0)
              .usually(concat("adam, adamw ", adam, "; sgd ", sgd)),
          flag("--lr-scale", "RULE",
              "multiply --lr by 1, by global batch / --batch-size, or by its square root: {}",
              &Options::optimizer, &Set::lr_scale),
          rate_flag("--sched", "NAME", "{}", &Lr::kind),
          rate_flag("--sched-on-updates", "",
              "change the rate at every step instead of every epoch", &Lr::on_updates),
          rate_flag("--warmup-epochs", "N",
              "epochs in which the rate rises to --lr, before the schedule begins",
              &Lr::warmup_epochs)
              .within(0, kMostEpochs)
              .usually(0),
          rate_flag("--warmup-steps", "N", "the same in steps; the schedule then counts steps, too",
              &Lr::warmup_steps)
              .within(0, kMostSteps),
          rate_flag("--warmup-lr", "X", "learning rate at the start of the warm-up", &Lr::warmup_lr)
              .from(0)
              .usually(text_of(Lr::kWarmupLr)),
          rate_flag("--min-lr", "X", "lower limit of the learning rate", &Lr::min_lr)
              .from(0)
              .usually(schedule.min_lr),
          rate_flag("--decay-epochs", "N", "for step: epochs between two falls", &Lr::decay_epochs)
              .within(1, kMostEpochs),
          flag_by<Options>("--decay-milestones", "N,N",
              "for multistep: epochs after which the rate falls", read_milestones,
              written_milestones),
          rate_flag("--decay-rate", "X", "factor of each fall", &Lr::decay_rate)
              .above(0)
              .to(1)
              .usually(concat(Lr::kDecayRate, "; exponential ", Lr::kExponentialRate)),
          rate_flag("--poly-power", "X",
              "for poly: exponent of the share of the training that remains", &Lr::power)
              .above(0)
              .usually(schedule.power),
          rate_flag("--patience-epochs", "N",
              "for plateau: evaluations without improvement to wait for", &Lr::patience_epochs)
              .within(0, kMostEpochs)
              .usually(plateau.patience),
          rate_flag("--cooldown-epochs", "N",
              "for plateau: evaluations that do not count after a fall", &Lr::cooldown_epochs)
              .within(0, kMostEpochs)
              .usually(plateau.cooldown),
          rate_flag("--pct-start", "X",
              "for onecycle: share of the training in which the rate rises", &Lr::pct_start)
              .within(0, 1)
              .usually(schedule.pct_start),
          rate_flag("--div-factor", "X", "for onecycle: --lr / the first rate", &Lr::div_factor)
              .above(0)
              .usually(schedule.div_factor),
          rate_flag("--final-div-factor", "X", "for onecycle: the first rate / the last",
              &Lr::final_div_factor)
              .above(0)
              .usually(schedule.final_div_factor)}};
}

Group average_group() {
  return {"Averaged and best weights",
      {flag_by<Options>(
           "--model-ema", "", "keep a moving average of the weights, and evaluate it too",
           [](Options& options, const FlagSpec&, Text) { options.ema.emplace(); },
           [](const Options& options) { return written_value(options.ema.has_value()); }),
          flag_by<Options>(
              "--model-ema-decay", "X", "share of the average that each step keeps",
              [](Options& options, const FlagSpec& flag, Text text) {
                read_value(flag, text, ema_of(options, flag).decay);
              },
              [](const Options& options) {
                return options.ema ? FlagValue(options.ema->decay) : FlagValue();
              })
              .real()
              .fraction()
              .usually(EmaSettings{}.decay),
          flag_by<Options>(
              "--model-ema-warmup", "",
              "start with a small decay and raise it to --model-ema-decay",
              [](Options& options, const FlagSpec& flag, Text) {
                ema_of(options, flag).warmup = true;
              },
              [](const Options& options) {
                return written_value(options.ema && options.ema->warmup);
              }),
          flag("--eval-metric", "NAME",
              "what decides which epoch is best: {}; of a program's own numbers max:NAME or "
              "min:NAME",
              &Options::eval_metric)
              .one_of(eval_metrics())
              .read_by([](Options& options, const FlagSpec& flag, Text text) {
                options.eval_metric = is_own_metric(text) ? text : flag.word(text);
              })}};
}

Group limit_group() {
  using Set = TrainLimits;
  const TrainOptions usual;
  return {"How long (the first that is reached ends it)",
      {flag("--epochs", "N", "passes over the data", &Options::limits, &Set::epochs)
              .may_change()
              .within(1, kMostEpochs)
              .usually(concat(*usual.limits.epochs, ", unless another limit is given")),
          flag("--max-steps", "N", "optimizer steps", &Options::limits, &Set::steps)
              .may_change()
              .within(1, kMostSteps),
          flag_by<Options>(
              "--max-time", "TIME", "training time over all restarts: 90s, 30m, 2h, 1h30m",
              [](Options& options, const FlagSpec&, Text text) {
                options.limits.seconds = parse_duration(text);
              },
              [](const Options& options) { return written_seconds(options.limits.seconds); })
              .may_change(),
          flag("--limit-train-batches", "N", "use at most this many batches per epoch",
              &Options::limit_train_batches)
              .within(1, kMostSteps)}};
}

void read_resume(Options& options, const FlagSpec&, Text text) {
  const bool is_named = text != "auto" && text != "never";
  options.resume.kind = text == "auto" ? Resume::kAuto : Resume::kNever;
  if (is_named) options.resume.kind = Resume::kFrom;
  options.resume.from = is_named ? text : "";
}

FlagValue written_resume(const Options& options) {
  if (options.resume.kind == Resume::kFrom) return options.resume.from;
  return std::string(options.resume.kind == Resume::kAuto ? "auto" : "never");
}

void read_interval(Options& options, const FlagSpec&, Text text) {
  const SnapshotInterval interval = parse_snapshot_interval(text);
  options.snapshots.unit = interval.unit;
  options.snapshots.count = interval.count;
}

FlagValue written_interval(const Options& options) {
  const SnapshotSettings& set = options.snapshots;
  if (set.unit == SnapshotUnit::kOverhead) return {};
  return snapshot_interval_text({set.unit, set.count});
}

void read_overhead(Options& options, const FlagSpec&, Text text) {
  options.snapshots.unit = SnapshotUnit::kOverhead;
  options.snapshots.count = parse_snapshot_overhead(text);
}

FlagValue written_overhead(const Options& options) {
  if (options.snapshots.unit != SnapshotUnit::kOverhead) return {};
  return text_of(100 * options.snapshots.count) + "%";
}

// A run that is resumed may have others.
Group may_change(Group group) {
  for (auto& flag : group.flags) flag.may_change();
  return group;
}

Group snapshot_group() {
  using Set = SnapshotSettings;
  return may_change({"Snapshots",
      {flag_by<Options>("--resume", "WHEN",
           "auto: continue from the newest snapshot in --output; never; DIR: from that run or "
           "snapshot",
           read_resume, written_resume),
          flag_on("--overwrite",
              "replace a run in --output that is not resumed, instead of refusing to start",
              &Options::resume, &ResumeSettings::overwrite),
          flag_by<Options>("--snapshot-interval", "TIME",
              "500steps, 2epochs, 600s; none: only one at the end; never", read_interval,
              written_interval)
              .usually("chosen by the overhead"),
          flag_by<Options>("--snapshot-overhead", "PERCENT",
              "share of the time to spend on snapshots; sets the interval, at least 30 s",
              read_overhead, written_overhead),
          flag("--keep", "N", "newest snapshots to keep; the best one is kept as well",
              &Options::snapshots, &Set::keep)
              .within(1, kMostEpochs),
          flag("--snapshot-copies", "N",
              "hosts that keep each snapshot whole, on their own disks; 0: they share --output",
              &Options::snapshots, &Set::copies)
              .within(0, kMostEpochs),
          flag_on("--snapshot-required",
              "end the run when a snapshot cannot be written, instead of warning",
              &Options::snapshots, &Set::required),
          flag_off("--no-rescue",
              "ranks that survive the death of others do not save what was trained until then",
              &Options::snapshots, &Set::rescue)}});
}

void read_val_interval(Options& options, const FlagSpec& flag, Text text) {
  options.val_interval = -1;
  if (text != flag.other_word) read_value(flag, text, options.val_interval);
}

FlagValue written_val_interval(const Options& options) {
  if (options.val_interval == -1) return std::string("never");
  return options.val_interval;
}

Group output_group() {
  return may_change({"What it writes and shows",
      {flag("--output", "DIR",
           "the run's folder: new or empty, or with --resume auto an existing run's",
           &Options::output)
              .usually("runs/TIME-MODEL-HOW"),
          flag("--val-interval", "N", "epochs between evaluations; 0: only at the end; or never",
              &Options::val_interval)
              .read_by(read_val_interval)
              .written_by(written_val_interval)
              .within(0, kMostEpochs)
              .or_word("never"),
          flag(
              "--log-interval", "N", "steps between lines of metrics.jsonl", &Options::log_interval)
              .within(1, kMostSteps),
          flag_on("--tensorboard",
              "write what metrics.jsonl has for TensorBoard too, into RUN/tensorboard",
              &Options::tensorboard),
          flag_on("--profile",
              "measure where the time of 10 steps goes, after 3, on accelerators 13; into "
              "RUN/profile",
              &Options::profile)
              .unless_usual(),
          flag("--progress", "STYLE", "{}; auto: bar on a terminal", &Options::progress),
          flag_by<Options>("--dry-run", "", "check everything, print the plan, write nothing"),
          flag_by<Options>("--json", "", "end stdout with the summary as one JSON object")}});
}

}  // namespace

const FlagTable<LaunchFlags>& launch_flags() {
  using Set = LaunchFlags;
  static const FlagTable<Set> kTable({.verb = "train"},
      {{"How ranks are started",
          {flag("--log-dir", "DIR", "folder for the other ranks' output; must be empty",
               &Set::log_dir),
              flag("--max-restarts", "N",
                  "restarts of all ranks from the newest snapshot when one dies",
                  &Set::max_restarts)
                  .within(0, 1'000'000)
                  .usually("3; one rank: 0"),
              flag_on("--spares",
                  "a process for each rank waits, with LibTorch loaded, to take its place after a "
                  "failure",
                  &Set::spares),
              launch::hang_timeout_flag<Set>(
                  [](Set& options, const FlagSpec&, Text text) { options.hang_timeout = text; }),
              flag("--grace-period", "SECONDS", "seconds between a forwarded signal and SIGKILL",
                  &Set::grace_period)
                  .within(0, 1e6),
              flag_off("--no-pin", "let each rank use all cores", &Set::pin),
              flag_on("--oversubscribe", "start more than 8 ranks on each core",
                  &Set::oversubscribe)}}});
  return kTable;
}

const FlagTable<TrainOptions>& train_flags() {
  static const FlagTable<TrainOptions> kTable(
      {.verb = "train",
          .usage = "lockstep train [flags]",
          .description =
              "Trains a model on images, texts, tokens or tensors, on one rank or on several.\n",
          .footer = kExamples},
      {model_group(), image_group(), spreading_group(), stages_group(), launch_group(),
          optimizer_group(), rate_group(), average_group(), limit_group(), snapshot_group(),
          output_group()});
  return kTable;
}

}  // namespace lockstep
