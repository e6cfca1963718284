#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lockstep/bench/experiment/cell.h"

namespace lockstep::bench::scale_out {

inline constexpr const char* kEpochSeconds = "epoch_seconds";
inline constexpr const char* kEpochs = "epochs";
inline constexpr const char* kBestValLoss = "best_val_loss";

/// Are the shares of the budget, in percent, at which losses are kept.
std::vector<int> curve_percents();

/// Names the values of the two curves: the mean training loss since the share before, and the
/// newest validation loss. `train_loss_at_005`.
std::string train_loss_name(int percent);
std::string val_loss_name(int percent);

/// Reads the values of a run from its summary.json and metrics.jsonl: `learning_rate`,
/// `global_batch`, `steps`, `step_seconds`, `model_bytes`, `best_val_loss`, `test_loss`,
/// `test_accuracy`, the two curves; if a whole epoch was made `steps_an_epoch`, `epoch_seconds`
/// (with its validation), `epochs` (passes over the images, the last one in part). Of the cell in
/// which a worker is killed besides `restarts`, `killed_after_seconds`, `made_again_seconds` and
/// `lost_seconds`.
///
/// A run that did not end by its clock, or in which nobody was killed who should have been, is a
/// DataError.
std::map<std::string, double> node_values(const StudyCell& cell, const std::filesystem::path& run);

}  // namespace lockstep::bench::scale_out
