#include "lockstep/train/strategy/layout.h"

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/flags_of_ways.h"
#include "lockstep/parallel/schedule/timetable.h"

namespace lockstep {
namespace {

bool is_staged(Parallel way) { return takes_flag(name_of(way), "--stages"); }

// Flags that mean nothing for the way are refused: the user expects an effect.
void check_flags_fit(const TrainOptions& options) {
  const std::string way = name_of(options.parallel);
  check(is_staged(options.parallel) ||
            (!options.pipeline.stages && !options.pipeline.stages_a_worker),
      "train: --stages and --stages-per-place cut a model, and --parallel ", way,
      " does not; use mp, pp, ddp+mp or ddp+pp");
  const bool is_one_rank =
      options.parallel == Parallel::kSerial || options.parallel == Parallel::kDp;
  check(!is_one_rank || options.backend == "auto", "train: --backend ", options.backend,
      " carries what ranks tell each other, and --parallel ", way, " has one rank");
  check(takes_flag(way, "--chunks") || (!options.pipeline.chunks && !options.pipeline.schedule),
      "train: --chunks and --schedule are for --parallel pp and ddp+pp, not for ", way);
  const auto samples = std::max<std::int64_t>(options.batch_size, 1);
  check(options.pipeline.chunks.value_or(1) <= samples, "train: --chunks ",
      options.pipeline.chunks.value_or(1), " is more than the ", samples,
      " samples of a batch, and each micro-batch needs one; give fewer, or a larger --batch-size");
  check(is_staged(options.parallel) ||
            (options.pipeline.balance == Balance::kTime && !options.pipeline.deferred_batch_norm),
      "train: --balance and --deferred-batch-norm are for models that are cut into stages, not for "
      "--parallel ",
      way);
  check(is_staged(options.parallel) || options.pipeline.checkpoint != Checkpoint::kExceptLast,
      "train: --checkpoint except-last is for micro-batches of stages, not for --parallel ", way,
      "; take always");
  const bool calls_layers =
      options.parallel == Parallel::kSerial || options.parallel == Parallel::kDdp;
  check(options.pipeline.checkpoint_layers.empty() || calls_layers, "train: --checkpoint ",
      options.pipeline.checkpoint_layers,
      " is a pattern of layers, for --parallel serial and ddp; take always");
  check(options.pipeline.checkpoint == Checkpoint::kNever || options.parallel != Parallel::kDp,
      "train: --checkpoint cannot be combined with --parallel dp, whose replicas collect their "
      "gradients by themselves; take ddp");
  check(options.pipeline.checkpoint == Checkpoint::kNever || !options.sync_batch_norm,
      "train: --checkpoint computes layers again in backward, where --sync-batch-norm cannot join "
      "statistics once more; leave one of them out");
}

int stages_a_worker(const TrainOptions& options) {
  if (options.pipeline.stages_a_worker) return *options.pipeline.stages_a_worker;
  return schedule_of(options) == ScheduleKind::kInterleaved ? 2 : 1;
}

Layout replicas_layout(const TrainOptions& options, int world_size) {
  Layout layout;
  if (options.parallel == Parallel::kDp) {
    check(world_size == 1, "train: --parallel dp works in one process, but there are ", world_size,
        " ranks; use --parallel ddp, or --places instead of --nproc-per-node");
    layout.replicas = layout.places = options.places.value_or(2);
    return layout;
  }
  check(world_size == 1 || !options.places, "train: --parallel ", name_of(options.parallel),
      " has ranks that are processes or places; do not combine --nproc-per-node and --places");
  layout.thread_ranks = options.places.value_or(1);
  layout.replicas = world_size * layout.thread_ranks;
  return layout;
}

// One pipeline: over the ranks if there are several, else over places of the one process.
Layout one_pipeline(const TrainOptions& options, int world_size) {
  const int each = stages_a_worker(options);
  Layout layout;
  layout.stages_over_ranks = world_size > 1;
  check(world_size == 1 || !options.places, "train: --parallel ", name_of(options.parallel),
      " has one stage per rank or per place, not both: give --nproc-per-node or --places");
  const int asked = options.pipeline.stages.value_or(2 * each) / each;
  layout.workers = world_size > 1 ? world_size : options.places.value_or(asked);
  layout.stages = options.pipeline.stages.value_or(layout.workers * each);
  layout.places = layout.stages_over_ranks ? 1 : layout.workers;
  check(layout.workers >= 2, "train: --parallel ", name_of(options.parallel),
      " needs at least 2 places or ranks");
  return layout;
}

// Several pipelines, each in one process or over a row of ranks; one, where the world has shrunk.
Layout many_pipelines(const TrainOptions& options, int world_size) {
  const int each = stages_a_worker(options);
  Layout layout;
  layout.stages = options.pipeline.stages.value_or(2 * each);
  layout.workers = layout.stages / each;
  check(layout.workers >= 2, "train: --stages must be at least 2 per replica: ", layout.stages);
  layout.stages_over_ranks = world_size > 1 && !options.places;
  if (layout.stages_over_ranks) {
    check(world_size % layout.workers == 0, "train: ", world_size,
        " ranks cannot be divided into pipelines of ", layout.workers,
        "; start a multiple of it, or change --stages");
    layout.replicas = world_size / layout.workers;
  } else if (world_size > 1) {
    layout.places = *options.places;
    layout.replicas = world_size;
    check(layout.places == layout.workers, "train: each of the ", world_size,
        " ranks has a pipeline of ", layout.workers, " places; --places is ", layout.places);
  } else {
    const int places = options.places.value_or(2 * layout.workers);
    check(places % layout.workers == 0, "train: ", places,
        " places cannot be divided into pipelines of ", layout.workers,
        "; give a multiple of it, or change --stages");
    layout.replicas = layout.thread_ranks = places / layout.workers;
    layout.places = layout.workers;
  }
  return layout;
}

const char* title_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kSequential:
      return "one after the other";
    case ScheduleKind::kGPipe:
      return "GPipe";
    case ScheduleKind::k1F1B:
      return "1F1B";
    case ScheduleKind::kInterleaved:
      return "interleaved 1F1B";
    case ScheduleKind::kZeroBubble:
      return "zero-bubble";
  }
  return "?";
}

std::string counted(int count, const char* noun) {
  return concat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace

Layout plan_layout(const TrainOptions& options, int world_size) {
  check_flags_fit(options);
  check(options.places.value_or(1) >= 1, "train: --places must be at least 1: ", *options.places);
  const std::string way = name_of(options.parallel);
  check(takes_flag(way, "--shard-optimizer") || !options.optimizer.sharded,
      "train: --shard-optimizer divides the optimizer among the replicas of ddp, ddp+mp and "
      "ddp+pp; "
      "leave it out with --parallel ",
      way);
  check(takes_flag(way, "--sync-batch-norm") || !options.sync_batch_norm,
      "train: --sync-batch-norm is for --parallel ddp and fsdp, not for ", way);
  check(takes_flag(way, "--reshard") || options.gradients.reshard == Reshard::kAfterForward,
      "train: --reshard is for --parallel fsdp, not for ", way);
  const GradientSettings& gradients = options.gradients;
  check(takes_flag(way, "--comm-hook") ||
            (!gradients.bucket_mb && gradients.comm_hook.kind == CommHookKind::kNone &&
                !gradients.find_unused_parameters),
      "train: --bucket-mb, --comm-hook and --find-unused-parameters are for --parallel ddp, not "
      "for ",
      way);
  if (options.parallel == Parallel::kSerial) {
    check(world_size == 1, "train: --parallel serial trains on one rank, but there are ",
        world_size, "; use --parallel ddp");
    check(options.places.value_or(1) == 1,
        "train: --parallel serial computes in one place, but --places is ", *options.places,
        "; use --parallel ddp or dp");
    return {};
  }
  if (!is_staged(options.parallel)) return replicas_layout(options, world_size);
  Layout layout = is_replicated_stages(options.parallel) ? many_pipelines(options, world_size)
                                                         : one_pipeline(options, world_size);
  layout.micro_batches = static_cast<int>(
      std::min<std::int64_t>(chunks_of(options), std::max<std::int64_t>(options.batch_size, 1)));
  // Refuses what no schedule can carry.
  make_schedule(schedule_of(options), layout.workers, layout.stages, layout.micro_batches);
  return layout;
}

Layout plan_layout_in(const TrainOptions& options, int group_size, bool of_threads) {
  if (of_threads && options.places) {
    const Layout layout = plan_layout(options, 1);
    if (layout.thread_ranks == group_size) return layout;
  }
  return plan_layout(options, group_size);
}

EpochRule epoch_rule(const TrainOptions& options, const Layout& layout, std::int64_t samples) {
  const bool shares = options.parallel == Parallel::kDp;
  return {.samples = samples,
      .replicas = shares ? 1 : layout.replicas,
      .batch_size = options.batch_size * (shares ? layout.replicas : 1),
      .limit_batches = options.limit_train_batches,
      .batches_a_step = options.grad_accum_steps};
}

std::string describe(const TrainOptions& options, const Layout& layout) {
  if (options.parallel == Parallel::kFsdp)
    return concat("shared out over ", counted(layout.replicas, "rank"));
  std::string text = counted(layout.replicas, "replica");
  if (layout.stages == 1) return text;
  const ScheduleKind kind = schedule_of(options);
  text = layout.replicas == 1 ? "" : text + " x ";
  text += counted(layout.stages, "stage");
  if (layout.stages > layout.workers)
    text += concat(layout.stages_over_ranks ? " on " : " in ", layout.workers,
        layout.stages_over_ranks ? " ranks" : " places");
  // Of the schedule itself: closed forms hold only where chunks come out even.
  const double bubble = simulate(
      make_schedule(kind, layout.workers, layout.stages, layout.micro_batches), ActionCosts())
                            .idle_share();
  return text + concat(", ", title_of(kind), ", ", counted(layout.micro_batches, "chunk"),
                    ", bubble ", std::lround(bubble * 100), " %");
}

}  // namespace lockstep
