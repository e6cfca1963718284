#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/enum_names.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/models/catalogue.h"
#include "lockstep/parallel/schedule/partition.h"
#include "lockstep/parallel/schedule/schedule.h"
#include "lockstep/record/metrics.h"
#include "lockstep/snapshot/snapshot_interval.h"
#include "lockstep/train/options/optimizer_settings.h"

namespace lockstep {

/// The types in which a model computes; parameters and optimizer stay float32.
enum class Precision {
  k32,
  kBf16Mixed,  ///< autocast to bfloat16
  k16Mixed     ///< autocast to float16, with a GradScaler
};
constexpr auto names_of(Precision) {
  return std::array{EnumName{Precision::k32, "32"}, EnumName{Precision::kBf16Mixed, "bf16-mixed"},
      EnumName{Precision::k16Mixed, "16-mixed"}};
}

/// The float32 products that NVIDIA's GPUs may round to TF32, of 10 bits of mantissa, which is
/// several times as fast.
enum class Tf32 {
  kAuto,  ///< convolutions, not matrix products: LibTorch's own choice
  kOn,
  kOff
};
constexpr auto names_of(Tf32) {
  return std::array{
      EnumName{Tf32::kAuto, "auto"}, EnumName{Tf32::kOn, "on"}, EnumName{Tf32::kOff, "off"}};
}

/// The request of --precision.
struct PrecisionRequest {
  bool is_auto = false;
  bool is_given = false;  ///< on the command line
  Precision precision = Precision::k32;
};

/// The precision of a run, and the remarks on it.
struct PrecisionChoice {
  Precision precision = Precision::k32;
  std::string hint;     ///< that another would be quicker; may be empty
  std::string warning;  ///< of a slow one; may be empty
};

/// The hardware on which all ranks of a run compute.
struct Computing {
  double bf16_speed = 0;  ///< of products in bfloat16, float32's being 1; the least of all
  bool on_accelerators = false;
};

/// Decides in what to compute; `resumed` is what the snapshot has that a run goes on from, which
/// `auto` keeps.
PrecisionChoice choose_precision(
    const PrecisionRequest& asked, const Computing& on, std::optional<Precision> resumed);

/// The way in which the ranks of `ddp` send each other gradients.
enum class CommHookKind { kNone, kFp16, kBf16, kPowerSgd };
constexpr auto names_of(CommHookKind) {
  return std::array{EnumName{CommHookKind::kNone, "none"}, EnumName{CommHookKind::kFp16, "fp16"},
      EnumName{CommHookKind::kBf16, "bf16"}, EnumName{CommHookKind::kPowerSgd, "powersgd"}};
}

/// The settings of a communication hook; the numbers are PowerSGD's, as PyTorch's.
struct CommHookSettings {
  CommHookKind kind = CommHookKind::kNone;
  std::int64_t rank = 1;
  std::int64_t start_step = 1000;  ///< how many steps are exact, each time the run is started
};

/// The settings of how gradients are averaged over the ranks of `ddp`.
struct GradientSettings {
  std::optional<double> bucket_mb = {};  ///< MiB
  CommHookSettings comm_hook = {};
  bool find_unused_parameters = false;       ///< backward may leave some without a gradient
  Reshard reshard = Reshard::kAfterForward;  ///< of `fsdp`
};

/// Reads `none`, `fp16`, `bf16`, `powersgd`, `powersgd:RANK` or `powersgd:RANK:STEP`. Throws
/// InvalidArgument whose words go on after the flag's name.
CommHookSettings parse_comm_hook(const std::string& text);

/// Writes it so that it can be read.
std::string comm_hook_text(const CommHookSettings& settings);

enum class Augment { kNone, kCropFlip, kTimm };
constexpr auto names_of(Augment) {
  return std::array{EnumName{Augment::kNone, "none"}, EnumName{Augment::kCropFlip, "crop-flip"},
      EnumName{Augment::kTimm, "timm"}};
}

enum class BadImages { kFail, kSkip };
constexpr auto names_of(BadImages) {
  return std::array{EnumName{BadImages::kFail, "fail"}, EnumName{BadImages::kSkip, "skip"}};
}

/// The settings of how images of a set reach the model.
struct LoadingSettings {
  Augment augment = Augment::kNone;    ///< of the training images
  std::optional<int> image_size = {};  ///< height and width that the model sees
  std::optional<int> workers = {};     ///< threads of each rank that prepare batches
  BadImages bad_images = BadImages::kFail;
  std::int64_t cache_decoded = 0;  ///< bytes of decoded images that each rank keeps
  double val_split = 0;  ///< share of the training set that is not trained on but validated on
};

/// Returns the number of workers for a rank that computes on this number of cores.
///
/// The number asked for; otherwise none where a batch is a mere copy or the rank has one core, for
/// a worker on the computing core is slower than none, and half of the cores elsewhere, 8 at most.
int workers_of(const LoadingSettings& settings, int cores, bool is_mere_copy);

enum class Parallel { kSerial, kDp, kDdp, kFsdp, kMp, kPp, kDdpMp, kDdpPp };
constexpr auto names_of(Parallel) {
  using P = Parallel;
  return std::array{EnumName{P::kSerial, "serial"}, EnumName{P::kDp, "dp"},
      EnumName{P::kDdp, "ddp"}, EnumName{P::kFsdp, "fsdp"}, EnumName{P::kMp, "mp"},
      EnumName{P::kPp, "pp"}, EnumName{P::kDdpMp, "ddp+mp"}, EnumName{P::kDdpPp, "ddp+pp"}};
}

/// The quantity that is equal over the stages of a model.
enum class Balance { kCount, kSize, kTime };
constexpr auto names_of(Balance) {
  return std::array{EnumName{Balance::kTime, "time"}, EnumName{Balance::kSize, "size"},
      EnumName{Balance::kCount, "count"}};
}

enum class ProgressStyle { kAuto, kBar, kLine, kNone };
constexpr auto names_of(ProgressStyle) {
  using Style = ProgressStyle;
  return std::array{EnumName{Style::kAuto, "auto"}, EnumName{Style::kBar, "bar"},
      EnumName{Style::kLine, "line"}, EnumName{Style::kNone, "none"}};
}

/// A data set and the folder that holds it, or several files and folders with commas between them;
/// an empty one means the set's usual place.
struct DataSource {
  std::string name = "fashion-mnist";
  std::string directory = {};
  std::vector<std::string> classes = {};  ///< of `images`, by their numbers; empty: all, by name
  /// Of `tokens` and `text`; absent: what the model takes at most.
  std::optional<std::int64_t> sequence_length = {};
  std::vector<std::string> inputs = {}, targets = {};  ///< of `tensors`; empty: as names say
};

/// Returns whether a set lies in files of tensors, whose samples are no images: `tensors`, `tokens`
/// or `text`.
inline bool is_tensor_set(const std::string& name) {
  return name == "tensors" || name == "tokens" || name == "text";
}

/// The settings of how a model is cut into stages and how a batch passes through them.
struct PipelineSettings {
  std::optional<int> stages = {};           ///< of each replica
  std::optional<int> stages_a_worker = {};  ///< on each rank or in each place
  std::optional<int> chunks = {};
  std::optional<ScheduleKind> schedule = {};
  Balance balance = Balance::kTime;
  Checkpoint checkpoint = Checkpoint::kNever;
  std::string checkpoint_layers = {};  ///< pattern of their names, without stages; empty: all
  bool deferred_batch_norm = false;
};

/// Everything that decides a training run.
///
///     lockstep::TrainOptions options{.model = "toy", .batch_size = 64, .limits = {.epochs = 1}};
struct TrainOptions {
  std::string model = "mnist-small";
  std::string plugin = {};               ///< shared library with models of the user's own
  std::string pretrained = {};           ///< file of weights to begin with
  std::vector<std::string> freeze = {};  ///< patterns of parameters that are not trained
  DataSource data = {};
  std::int64_t repeat = 1;
  std::optional<std::int64_t> classes = {};  ///< of the model; absent: those of the data
  double dropout = 0;                        ///< of a language model
  LoadingSettings loading = {};
  Parallel parallel = Parallel::kSerial;
  std::string device = "auto";                  ///< `auto`, `cpu`, or a type of accelerator: `cuda`
  std::optional<int> places = {};               ///< of this process
  std::vector<std::string> place_devices = {};  ///< of each place, where they are named: `cuda:1`
  bool share_devices = false;                   ///< several ranks compute on one
  PipelineSettings pipeline = {};
  bool sync_batch_norm = false;
  GradientSettings gradients = {};
  std::string backend = "auto";
  std::optional<double> timeout = {};  ///< seconds that a rank waits for the others
  std::int64_t batch_size = 128;       ///< of each replica
  TrainLimits limits = {.epochs = 3};
  Precision precision = Precision::k32;
  bool auto_precision = false;  ///< `precision` was chosen by the processors, or is yet to be
  Tf32 tf32 = Tf32::kAuto;
  bool cudnn_benchmark = false;  ///< times the kernels of each convolution, and takes the fastest
  nn::Kernels kernels = nn::Kernels::kAuto;
  bool keep_denormals = false;  ///< of processors; else they count as zero
  OptimizerSettings optimizer = {};
  std::int64_t grad_accum_steps = 1;  ///< batches of each replica that make one optimizer step
  std::optional<TaskKind> task = {};  ///< absent: what the targets of the data say
  std::string plugin_task = {};       ///< a plugin's, which makes a program of the model
  std::string loss = {};              ///< of training and evaluation; empty: the task's usual one
  double smoothing = 0;               ///< of the labels in training
  std::optional<EmaSettings> ema = {};
  std::string eval_metric = "loss";  ///< that says which epoch is the best
  std::int64_t seed = 42;
  std::int64_t val_interval = 1;   ///< in epochs; 0: only at the end; -1: never
  std::int64_t log_interval = 50;  ///< in steps
  bool tensorboard = false;        ///< records as event files too
  bool profile = false;            ///< of some steps
  std::optional<std::int64_t> limit_train_batches = {};
  ProgressStyle progress = ProgressStyle::kAuto;
  std::string output = {};  ///< the run's folder
  SnapshotSettings snapshots = {};
  ResumeSettings resume = {};
};

/// Returns the tokens of a sample: as given, else what the model takes at most; 0: not known.
inline std::int64_t sequence_length(const TrainOptions& options) {
  return options.data.sequence_length.value_or(nn::net_needs(options.model).context);
}

/// Returns whether there are several pipelines.
bool is_replicated_stages(Parallel way);

/// Returns the schedule of a way that cuts the model, and the micro-batches that were asked for.
ScheduleKind schedule_of(const TrainOptions& options);
int chunks_of(const TrainOptions& options);

/// Throws InvalidArgument that names the flag unless every value is possible on this number of
/// ranks.
void check_options(const TrainOptions& options, int world_size);

/// Returns the precision for people: `bf16-mixed (auto)`.
std::string precision_text(const TrainOptions& options);

/// Returns the folder of a run that names none: `runs/<UTC time>-<model>-<parallel>`.
std::string default_output(const TrainOptions& options, std::int64_t unix_time);

}  // namespace lockstep
