#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/formats/weights/tensor_parts.h"
#include "lockstep/nn/ema.h"
#include "lockstep/nn/grad_scaler.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/snapshot/run_lock.h"
#include "lockstep/snapshot/snapshot_saver.h"

namespace lockstep {

/// The options of a run's snapshots.
struct SnapshotOptions {
  int keep = 2;           ///< the newest ones; the best one comes on top
  bool required = false;  ///< one that cannot be written throws, instead of a warning on stderr
  bool rescue = false;    ///< the program calls save_alone() when it loses its peers
};

/// Where a run goes on.
struct SnapshotPosition {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
};

/// The facts that are saved with the model and the optimizer.
struct SnapshotMoment {
  std::int64_t epoch = 0;                 ///< that is under way or begins next
  std::optional<std::int64_t> step = {};  ///< of the run; without it one more than the last one's
  /// Of the epoch under way, that all ranks together have trained on: DistributedSampler::epoch()
  /// goes on there, on any number of ranks.
  std::int64_t samples = 0;
  const nn::GradScaler* scaler = nullptr;
  const ModelEma* ema = nullptr;                   ///< of the module
  std::map<std::string, std::string> values = {};  ///< the program's own, UTF-8
  bool best = false;  ///< none was better so far: it stays until a better one comes
};

/// Saves what a training loop needs to go on bit for bit, and gives it back: parameters, buffers,
/// the optimizer with its options, the generators of every rank.
///
///     lockstep::Snapshot snapshot("hello-run", world);
///     auto [epoch, step] = snapshot.load(*net, optimizer);  // {0, 0} the first time
///     for (; epoch < 10; ++epoch) {
///       ...
///       snapshot.save(*net, optimizer, {.epoch = epoch + 1});
///     }
///
/// One within an epoch says how far the ranks are in it, and the next start deals out the rest:
///
///     snapshot.save(*net, optimizer, {.epoch = epoch, .step = step, .samples = samples});
///     ...
///     sampler.epoch(epoch, snapshot.samples())
///
/// Pass the module itself, not what wraps it. All ranks hold it whole, with the same parameters, as
/// DistributedDataParallel keeps them; rank 0 writes it, and its buffers. The state of a
/// ShardedOptimizer is written by its owners; another number of ranks may go on with it. Everything
/// lies in RUN/snapshots, which all ranks must see; each folder there is complete or not there.
///
/// Files are written while training goes on, one snapshot at a time. One that cannot be written is
/// a warning of rank 0 on stderr, and those before stay.
///
/// From load() to its end it has the folder for itself, see Note [A run's folder].
class Snapshot {
 public:
  /// All ranks give the same arguments; nothing is read or written yet.
  Snapshot(std::filesystem::path run, ProcessGroup world, SnapshotOptions options = {});

  /// Goes on from the newest snapshot that is whole, on all ranks; from the beginning if there is
  /// none. Rank 0 says on stderr which it is, and names those that are broken. A collective; before
  /// save().
  ///
  /// While another run has the folder, of any process, this is an InvalidArgument that names it. A
  /// folder that this program may not write to is only read.
  ///
  /// A snapshot of another model or optimizer is a DataError that lists the differences. Ranks
  /// beyond those that saved keep the generators that they have. A scaler must be passed if, and
  /// only if, one was saved; averages likewise.
  SnapshotPosition load(torch::nn::Module& module, torch::optim::Optimizer& optimizer,
      nn::GradScaler* scaler = nullptr, ModelEma* ema = nullptr);

  /// Does so for a model that the ranks share, whoever wrote the snapshot. `ranges` names all
  /// tensors of which ranks have parts, also those of which this rank has nothing. `state` has this
  /// rank's parts under those names, in the sizes of TensorRange::sizes(), and what all ranks have
  /// alike. The optimizer and the averages are those of these very tensors.
  SnapshotPosition load(const nn::NamedTensors& state, const TensorRanges& ranges,
      torch::optim::Optimizer& optimizer, nn::GradScaler* scaler = nullptr,
      ModelEma* ema = nullptr);

  /// Returns SnapshotMoment::samples of the snapshot that load() took; 0 without one.
  std::int64_t samples() const { return samples_; }

  /// Returns SnapshotMoment::values of the snapshot that load() took.
  const std::map<std::string, std::string>& values() const { return values_; }

  /// Copies everything and returns; training may go on while it is written. Waits for the one
  /// before first. Between optimizer steps, a collective.
  void save(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
      const SnapshotMoment& moment);

  /// Does so for a model that the ranks share: each writes what it holds, see load(); of those that
  /// hold the same, one.
  void save(const nn::NamedTensors& state, const TensorRanges& ranges,
      const torch::optim::Optimizer& optimizer, const SnapshotMoment& moment);

  /// Saves without the other ranks, after a CommError in a backward pass or between steps: then
  /// each rank still holds what all have trained, but for buffers, which forward has changed, and
  /// the generators of the others. Returns once it is durable; false if another rank does the same.
  ///
  /// A launcher of ours waits for it if SnapshotOptions::rescue is set: half a second until it
  /// begins, then a minute. Not for a ShardedOptimizer (InvalidArgument). Throws std::system_error
  /// for what the disk does not take. No collective.
  ///
  ///     } catch (const lockstep::CommError&) {
  ///       snapshot.save_alone(*net, optimizer, {.epoch = epoch});
  ///       throw;
  ///     }
  bool save_alone(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
      const SnapshotMoment& moment);

  /// Waits until the last one is durable, and warns if it is not. A collective. The destructor
  /// waits as well, but for the other ranks no longer than a minute and a half, and throws nothing.
  void wait();

 private:
  void take_folder();
  std::int64_t step_of(const SnapshotMoment& moment) const;
  void say_warnings();

  std::filesystem::path run_;
  ProcessGroup world_;
  SnapshotOptions options_;
  std::int64_t samples_ = 0;
  std::map<std::string, std::string> values_;
  std::optional<std::int64_t> last_step_;  // nothing before load()
  std::unique_ptr<const RunLock> lock_;    // of rank 0, from load() on; it outlives the saver
  SnapshotSaver saver_;
};

}  // namespace lockstep
