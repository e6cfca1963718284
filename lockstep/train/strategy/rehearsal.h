#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/nn/models/model.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/epoch_position.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/strategy/start_weights.h"
#include "lockstep/train/strategy/task.h"

namespace lockstep {

/// A number of samples that a training will give the model at a time, and when: words that go on
/// after "cannot train on".
struct Rehearsed {
  std::int64_t samples = 0;
  std::string when;
};

/// Returns what to rehearse before a training that begins at `position`: parts of batches that a
/// model may refuse though it takes the others. That is a single sample, as of the last batch of an
/// epoch, and for nets of plugins any last batch that is smaller.
std::vector<Rehearsed> to_rehearse(const TrainOptions& options, const Layout& layout,
    const EpochRule& rule, const EpochPosition& position = {});

/// Computes forward passes of these numbers of samples in the modes of training, so that what the
/// model does not take is known before the first step and not at the end of an epoch; looks too
/// whether files can hold its parameters and buffers, which stay as they are.
///
/// Throws InvalidArgument with what the model says and what to do.
void rehearse(const TrainOptions& options, const Task& task, nn::Model& model,
    const StartWeights& start, const std::vector<Rehearsed>& all);

}  // namespace lockstep
