#pragma once

#include <filesystem>

#include "lockstep/bench/experiment/study.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Makes the study "does a second device pay, with DataParallel or with DDP": two nets on MNIST's
/// like, two epochs, batch sizes per replica, places, both ways. Its samples have the values
/// `first_epoch_seconds`, `second_epoch_seconds`, `epoch_share` (below 1: the times are
/// extrapolated from that part of an epoch), `samples_per_s`, `train_loss`, `test_accuracy`.
Study data_parallel_study(const StudyOptions& options);

/// Throws DataError or InvalidArgument when the set is not there.
void prepare_data_parallel(const StudyOptions& options, const std::filesystem::path& output);

}  // namespace lockstep::bench
