#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/train/accumulation.h"
#include "lockstep/train/bad_image_watch.h"
#include "lockstep/train/datasets.h"
#include "lockstep/train/ema.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/layout.h"
#include "lockstep/train/lr_scheduler.h"
#include "lockstep/train/meter.h"
#include "lockstep/train/options.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/replica.h"
#include "lockstep/train/run_recorder.h"
#include "lockstep/train/summary.h"
#include "lockstep/train/time_budget.h"

namespace lockstep {

/// Trains a named model on named data, on every rank of a group, and records the run on rank 0.
///
/// Make one on every rank with the same options.
///
///     lockstep::Trainer trainer(options, lockstep::init_process_group(), {"my-program"});
///     auto summary = trainer.run();
class Trainer {
 public:
  /// Reads the data and makes the model; `command` is what command.txt shall say.
  ///
  /// `places` are those in which this rank computes: as many as the layout gives a rank (see
  /// plan_layout()); for one, where the calling thread is.
  Trainer(
      TrainOptions options,
      const ProcessGroup& world,
      const std::vector<std::string>& command,
      const std::vector<Place>& places = {});

  /// Trains until the first limit, evaluates, and checks that all ranks hold the same parameters.
  /// Once only.
  ///
  /// Throws DivergedError when the loss is not a number, CommError when ranks are lost; what was
  /// measured until then is in the run's folder.
  RunSummary run();

 private:
  void tell_of_start();
  void train();
  EpochSummary train_epoch(std::int64_t epoch);
  MeterReading train_steps(const Loader& loader, std::int64_t epoch);
  void make_step();
  std::optional<double> loss_scale() const;
  bool finished();
  MeterReading log_interval(std::int64_t epoch);
  void evaluate_epoch(EpochSummary& epoch);
  Evaluation measure(
      const data::SamplesPointer& samples, const std::string& split, std::int64_t epoch);
  void judge(std::int64_t epoch, double value);
  void save_best();
  void save_last();
  void save_model(const std::string& name, const std::map<std::string, std::string>& metadata);
  void test();
  void fail(const std::exception& error);

  Loader train_loader(std::int64_t epoch) const;
  Loader evaluation_loader(const data::SamplesPointer& samples) const;
  void tell_of_bad_images();
  void tell_of_slow_loader(const MeterReading& reading);

  std::int64_t batch_size() const;
  EpochBatches epoch_batches() const;
  LrScheduler make_scheduler() const;
  void announce_rest(std::int64_t epoch, std::int64_t steps);
  bool evaluation_due(std::int64_t epoch) const;

  TrainOptions options_;
  Layout layout_;
  RankGroups groups_;
  Datasets data_;
  int workers_;
  BadImageWatch bad_images_;
  std::unique_ptr<Replica> replica_;
  DistributedSampler sampler_;
  EpochBatches batches_;
  LrScheduler scheduler_;
  std::optional<ModelEma> ema_;
  Meter meter_;
  Progress progress_;
  std::optional<RunRecorder> recorder_;
  std::optional<TimeBudget> budget_;
  Stopwatch since_start_;
  bool told_of_slow_loader_ = false;
  std::int64_t step_ = 0;
  RunSummary summary_;
};

}  // namespace lockstep
