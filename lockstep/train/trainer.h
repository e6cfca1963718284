#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/progress_page.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/train/agreement.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/input/bad_image_watch.h"
#include "lockstep/train/input/datasets.h"
#include "lockstep/train/optim/ema.h"
#include "lockstep/train/optim/lr_scheduler.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/record/best_weights.h"
#include "lockstep/train/record/meter.h"
#include "lockstep/train/record/progress.h"
#include "lockstep/train/record/run_recorder.h"
#include "lockstep/train/record/summary.h"
#include "lockstep/train/snapshot/snapshot_saver.h"
#include "lockstep/train/state/epoch_position.h"
#include "lockstep/train/state/resume.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {

/// Trains a named model on named data, on every rank of a group, and records the run on rank 0.
///
/// Make one on every rank with the same options.
///
///     lockstep::Trainer trainer(options, lockstep::init_process_group(), {"my-program"});
///     auto summary = trainer.run();
class Trainer {
 public:
  /// Reads the data, makes the model, and gives it the state of a snapshot if the options say so;
  /// `command` is what command.txt shall say.
  ///
  /// `places` are those in which this rank computes: as many as the layout gives a rank (see
  /// plan_layout()); for one, where the calling thread is.
  Trainer(
      TrainOptions options, const ProcessGroup& world, const std::vector<std::string>& command,
      const std::vector<Place>& places = {});

  /// Trains until the first limit, evaluates, and checks that all ranks hold the same parameters;
  /// or until a stop signal, then the last snapshot is all. Once only.
  ///
  /// Throws DivergedError when the loss is not a number, CommError when ranks are lost,
  /// std::system_error when a snapshot is required and cannot be written; what was measured until
  /// then is in the run's folder.
  RunSummary run();

 private:
  // trainer.cpp
  void tell_of_start();
  void train();
  void pass_epochs();
  void end_epoch(bool goes_on, bool is_better);
  void end();
  void write_what_waits();
  void fail(const std::exception& error);

  // trainer_epoch.cpp: one pass over the data
  EpochSummary train_epoch();
  void train_steps(const Loader& loader);
  void make_step();
  void after_step(bool epoch_is_over);
  void end_steps();
  std::optional<double> loss_scale() const;
  void log_interval();
  Loader train_loader() const;
  EpochRule epoch_rule() const;
  void announce_rest();
  void tell_of_bad_images();
  void tell_of_slow_loader(const MeterReading& reading);

  // trainer_evaluation.cpp: what it measures and judges
  bool evaluation_due() const;
  bool evaluate_epoch(EpochSummary& epoch);
  Evaluation measure(
      const data::SamplesPointer& samples, const std::string& split, std::int64_t epoch);
  bool judge(std::int64_t epoch, double value);
  void record(const MetricRecord& record);
  void save_best();
  std::map<std::string, std::string> best_metadata() const;
  void save_last();
  void save_model(const std::string& name, const std::map<std::string, std::string>& metadata);
  void test();
  Loader evaluation_loader(const data::SamplesPointer& samples) const;

  // trainer_snapshot.cpp: when all ranks stop or save, and what
  void look_at_limits(bool epoch_is_over);
  void agree();
  double elapsed() const;
  double own_training_seconds() const;
  TrainingProgress progress_so_far() const;
  bool snapshot_due() const;
  void save_snapshot(bool best);
  SnapshotPart snapshot_part(bool best) const;
  nn::NamedTensors named_averages() const;
  RunState run_state() const;
  bool is_finite_everywhere() const;
  void finish_snapshots();
  void tell_of_snapshots();

  // trainer_resume.cpp: the way back
  LrScheduler make_scheduler() const;
  void restore();
  void restore_tensors_of(const SnapshotReader& snapshot);
  void restore_rank(const SnapshotReader& snapshot);
  void restore_best(const std::filesystem::path& run);
  bool is_spread_as_before(const SnapshotReader& snapshot) const;

  std::int64_t batch_size() const;

  TrainOptions options_;
  Layout layout_;
  RankGroups groups_;
  std::optional<ProgressPage> page_;
  Datasets data_;
  int workers_;
  BadImageWatch bad_images_;
  StartingPoint start_;
  std::unique_ptr<Replica> replica_;
  DistributedSampler sampler_;
  LrScheduler scheduler_;
  std::optional<ModelEma> ema_;
  Meter meter_;
  Progress progress_;
  std::optional<RunRecorder> recorder_;      // of rank 0
  std::optional<BestWeights> best_weights_;  // likewise
  SnapshotSaver saver_;
  Agreement agreement_;
  Stopwatch since_start_, since_training_, since_epoch_;
  bool told_of_slow_loader_ = false;

  std::int64_t step_ = 0;
  EpochPosition position_;
  EpochBatches batches_;            // that are left of the epoch
  std::int64_t schedule_step_ = 0;  // step_, but for runs whose number of replicas has changed
  MeterReading epoch_total_;        // up to the last log line
  double seconds_ = 0;              // of training, as all ranks agreed last
  int signal_ = 0;                  // that stopped the run
  TrainingProgress last_snapshot_;
  std::string best_snapshot_;
  RunSummary summary_;
};

}  // namespace lockstep
