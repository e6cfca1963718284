#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/record/summary.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/epoch_loop.h"
#include "lockstep/train/train_run.h"
#include "lockstep/train/validator.h"

namespace lockstep {

/// A training of a named model on named data, on every rank of a group; rank 0 records the run.
///
/// Make one on every rank with the same options.
///
///     lockstep::Trainer trainer(options, lockstep::init_process_group(), {"my-program"});
///     auto summary = trainer.run();
class Trainer {
 public:
  /// Prepares a run, as TrainRun does.
  Trainer(TrainOptions options, const ProcessGroup& world, const std::vector<std::string>& command,
      const std::vector<Place>& places = {});

  /// Trains until the first limit, evaluates, and checks that all ranks hold the same parameters;
  /// or until a stop signal, then the last snapshot is all. Once only.
  ///
  /// Throws DivergedError when the loss or a weight is not a finite number, CommError when ranks
  /// are lost, std::system_error when a snapshot is required and cannot be written; what was
  /// measured until then is in the run's folder.
  RunSummary run();

 private:
  void train();
  void pass_epochs();
  void finish_profile();
  void pass_epoch();
  RunSummary summary() const;
  RunSummary finished();
  int exit_status() const;
  void write_what_waits();
  void check_loss(const std::optional<double>& loss) const;
  void end_diverged(const DivergedError& error);
  void record_failure(const std::exception& error);

  TrainRun run_;
  Checkpointer checkpointer_;
  EpochLoop loop_;
  Validator validator_;
  RunSummary measured_;  // what the state does not have
};

}  // namespace lockstep
