#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/core/enum_names.h"
#include "lockstep/parallel/schedule/partition.h"
#include "lockstep/parallel/schedule/schedule.h"
#include "lockstep/plan/machine.h"

namespace lockstep::plan {

/// The means by which replicas agree on their gradients.
enum class Replication {
  kThreads,    ///< dp: threads of one process
  kProcesses,  ///< ddp: a process each, buckets reduced during backward
  kShards  ///< fsdp: a process each, which keeps its part of parameters, gradients and optimizer
};

/// The form in which a communication hook sends the gradients.
enum class SentAs { kAsTheyAre, kFp16, kBf16 };
constexpr auto names_of(SentAs) {
  return std::array{EnumName{SentAs::kAsTheyAre, "none"}, EnumName{SentAs::kFp16, "fp16"},
      EnumName{SentAs::kBf16, "bf16"}};
}

/// A way of spreading a training: replicas of the model, each cut into stages.
struct Way {
  int replicas = 1;
  int stages = 1;  ///< places of a replica
  Replication replication = Replication::kProcesses;
  ScheduleKind schedule = ScheduleKind::k1F1B;  ///< of the stages
  int micro_batches = 1;                        ///< of a replica's batch, where it has stages
  std::vector<int> balance = {};                ///< layers of each stage; empty: cut by time
  Checkpoint checkpoint = Checkpoint::kNever;
  int accumulated = 1;      ///< backward passes for a step of the optimizer, without stages
  bool is_sharded = false;  ///< each replica keeps a part of the optimizer (ZeRO stage 1)
  SentAs sent_as = SentAs::kAsTheyAre;
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  std::size_t unit_bytes = std::size_t{1} << 20;  ///< of fsdp: adjacent layers gathered at once
  Reshard reshard = Reshard::kAfterForward;       ///< of fsdp
  int copies = 1;           ///< of the model, of fsdp: replicas that follow one another share one
  bool is_pytorch = false;  ///< of dp: as PyTorch's DataParallel would do it
  /// For which the forward of each of its replicas keeps Python's lock; 0: as long as the forward
  /// of one sample takes, which on an accelerator is spent on starting kernels.
  double lock_seconds = 0;

  int places() const { return replicas * stages; }
  /// Stages of the schedule: interleaved has two a place.
  int scheduled_stages() const;
};

/// Returns the name as --parallel takes it: serial, dp, ddp, fsdp, mp, pp, ddp+mp,
/// ddp+pp.
std::string kind_of(const Way& way);

/// Describes a way for people: `ddp x 4`, `pp x 2 (1f1b, 8 chunks)`, `ddp+pp 2 x 4 (1f1b, 8
/// chunks)`, `ddp x 4 (sharded, bf16 gradients)`, `fsdp x 8 (2 copies)`.
std::string describe(const Way& way);

/// Says why the way is impossible for this model, batch (of all replicas) and machine, and what
/// would make it possible; empty: it is not.
std::string why_not(
    const Way& way, const ModelProfile& profile, double batch, const Machine& machine);

/// The ways that are to be compared.
struct WayChoice {
  std::vector<std::string> kinds = {};  ///< as kind_of; empty: all
  std::vector<ScheduleKind> schedules = {ScheduleKind::k1F1B};
  std::vector<int> micro_batches = {};  ///< empty: powers of two up to four times the stages
  /// Its settings (accumulation, buckets, sharding, hook, checkpoints) are those of each way that
  /// can have them.
  Way settings = {};
};

/// Lists the ways on 1, 2, 4, ... places and on all of the machine's, serial first. dp, mp and pp
/// stay within a node, as do the stages of a replica.
std::vector<Way> ways_on(const Machine& machine, const WayChoice& choice);

}  // namespace lockstep::plan
