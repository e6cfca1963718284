#pragma once

#include <filesystem>

#include "lockstep/bench/experiment/study.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Makes the study "what do a second place and a second node give to DDP": ResNet18 on CIFAR-100,
/// ten epochs, on one place, two of one node by two launchers, and two nodes. Its samples have the
/// values `run_seconds` (ten epochs of training), `first_epoch_seconds`, `epoch_seconds` (one of
/// the others), `epoch_share` (below 1: the times are extrapolated from that part of an epoch),
/// `trained_seconds` (what was really trained), `samples_per_s`, `train_loss`.
Study ddp_scaling_study(const StudyOptions& options);

/// Draws a set in CIFAR-100's form into the bench's folder, unless one was named: then it throws
/// DataError or InvalidArgument when that is not there.
void prepare_ddp_scaling(const StudyOptions& options, const std::filesystem::path& output);

}  // namespace lockstep::bench
