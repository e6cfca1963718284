#include "lockstep/core/backend_names.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep {

namespace {

using Options = TrainOptions;
using Text = const std::string&;

constexpr double kMostStages = 1024;
constexpr double kMostChunks = 10'000;

void read_timeout(Options& options, const FlagSpec& flag, Text text) {
  constexpr double kLongest = 1e7;  // a third of a year
  const double seconds = parse_duration(text);
  check(seconds >= 0.001 && seconds <= kLongest, flag.verb, ": ", flag.name,
      " must be from 0.001s to ", kLongest, "s: ", text);
  options.timeout = seconds;
}

FlagValue written_timeout(const Options& options) {
  return options.timeout ? FlagValue(text_of(*options.timeout) + "s") : FlagValue();
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

}  // namespace

FlagGroup<TrainOptions> spreading_group() {
  return {"How to distribute it",
      {flag("--parallel", "HOW", "{}; auto: measures, and takes the fastest", &Options::parallel)
              .may_change()
              .usually("serial; ddp if there is more than one rank"),
          flag("--device", "TYPE",
              "auto, cpu, cuda or another accelerator; auto: GPUs where LibTorch can use them",
              &Options::device)
              .may_change()
              .unless_usual(),
          flag_by<Options>("--places", "WHERE",
              "places in this process: their number (accelerators, or equal sets of its cores), "
              "or their names: cuda:0,cuda:1",
              read_places, written_places)
              .may_change()
              .whole()
              .from(1)
              .to(kMostStages)
              .or_word("devices such as cuda:0,cuda:1")
              .usually("2 if HOW needs it"),
          flag_by<Options>("--nproc-per-node", "N",
              "start N ranks on this machine; auto: one per GPU, else one per core")
              .for_launcher()
              .usually(1),
          flag_on("--share-devices",
              "ranks of this host share its accelerators, and meet by way of its memory: NCCL "
              "takes "
              "no two ranks on one GPU",
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
              "for ddp: how gradients are sent: none, fp16, bf16, powersgd[:RANK[:STEP]], which is "
              "exact before STEP",
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
              .from(1)
              .to(kMostBatches),
          flag_by<Options>("--precision", "P", "{}; auto: bf16-mixed where that is fast",
              read_precision,
              [](const Options& options) { return written_value(options.precision); })
              .one_of(precision_words()),
          flag("--tf32", "HOW",
              "let NVIDIA's GPUs round float32 products to TF32: {}; auto: only in convolutions",
              &Options::tf32)
              .unless_usual(),
          flag_on("--cudnn-benchmark",
              "let cuDNN time its kernels for each new shape of a convolution, and take the "
              "fastest; "
              "runs may then differ in their last digits",
              &Options::cudnn_benchmark)
              .unless_usual(),
          flag_by<Options>(
              "--kernels", "WHOSE",
              "whose kernels compute convolutions and batch norm on the CPU: {}; auto: the faster",
              [](Options& options, const FlagSpec& flag, Text text) {
                read_value(flag, text, options.kernels);
              },
              written_kernels)
              .one_of(all_names<nn::Kernels>()),
          flag_on("--keep-denormals",
              "do not count numbers below 1.2e-38 as zero; processors compute with them many times "
              "slower",
              &Options::keep_denormals)
              .unless_usual(),
          flag("--backend", "NAME", "{}", &Options::backend).may_change().one_of(backend_names()),
          flag_by<Options>("--timeout", "TIME",
              "how long a rank waits for the others: at the start, and in each collective",
              read_timeout, written_timeout)
              .may_change()
              .usually("5m")}};
}

FlagGroup<TrainOptions> stages_group() {
  using Set = PipelineSettings;
  TrainOptions piped;
  piped.parallel = Parallel::kPp;
  return {"How to cut the model (mp, pp, ddp+mp, ddp+pp)",
      {flag("--stages", "N", "stages of each replica", &Options::pipeline, &Set::stages)
              .may_change()
              .from(1)
              .to(kMostStages)
              .usually("one on each rank or in each place"),
          flag("--chunks", "N", "for pp and ddp+pp: micro-batches per batch, at most --batch-size",
              &Options::pipeline, &Set::chunks)
              .may_change()
              .from(1)
              .to(kMostChunks)
              .usually(chunks_of(piped)),
          flag("--schedule", "NAME", "{}", &Options::pipeline, &Set::schedule)
              .may_change()
              .usually(name_of(schedule_of(piped))),
          flag("--stages-per-place", "N",
              "for interleaved and zero-bubble: stages on each rank or place", &Options::pipeline,
              &Set::stages_a_worker)
              .may_change()
              .from(1)
              .to(kMostStages)
              .usually("interleaved 2, else 1"),
          flag("--balance", "BY", "what to balance over the stages: {}", &Options::pipeline,
              &Set::balance)
              .may_change()
              .unless_usual(),
          flag("--checkpoint", "WHEN", "recompute activations in backward: {}", &Options::pipeline,
              &Set::checkpoint)
              .may_change()
              .unless_usual(),
          flag_on("--deferred-batch-norm",
              "running statistics follow the whole batch, not each micro-batch", &Options::pipeline,
              &Set::deferred_batch_norm)}};
}

// The launcher takes these out before a rank sees them.
FlagGroup<TrainOptions> launch_group() {
  return {"How ranks are started",
      {flag_by<Options>("--log-dir", "DIR", "folder for the other ranks' output; must be empty")
              .for_launcher(),
          flag_by<Options>(
              "--max-restarts", "N", "restarts of all ranks from the newest snapshot when one dies")
              .whole()
              .from(0)
              .to(1'000'000)
              .usually("3; one rank: 0")
              .for_launcher(),
          flag_by<Options>("--spares", "",
              "a process for each rank waits, with LibTorch loaded, to take its place after a "
              "failure")
              .for_launcher(),
          launch::hang_timeout_flag<Options>().for_launcher(),
          flag_by<Options>(
              "--grace-period", "SECONDS", "seconds between a forwarded signal and SIGKILL")
              .real()
              .from(0)
              .to(1e6)
              .usually(30)
              .for_launcher(),
          flag_by<Options>("--no-pin", "", "let each rank use all cores").for_launcher(),
          flag_by<Options>("--oversubscribe", "", "start more than 8 ranks on each core")
              .for_launcher()}};
}

}  // namespace lockstep
