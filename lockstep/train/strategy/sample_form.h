#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/samples.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/epoch_position.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/strategy/start_weights.h"
#include "lockstep/train/task/task.h"

namespace lockstep {

/// The form of a sample: an image [channels, height, width], or the inputs that a set names; and
/// the number of outputs of a net of ours.
struct SampleForm {
  std::vector<std::int64_t> image;
  std::int64_t outputs = 0;
  std::vector<data::TensorForm> inputs = {};
  std::vector<data::TensorForm> targets = {data::kClassTarget};
};

/// Returns the form of a set for a model of that many outputs.
SampleForm sample_form(const data::Samples& set, std::int64_t outputs);

/// Throws InvalidArgument unless the model takes as many tensors as a sample has; stages pass on
/// one tensor only.
void check_inputs(const TrainOptions& options, const Layout& layout, const SampleForm& form,
    const nn::Model& model);

/// A number of samples that a training will give the model at a time, and when: words that go on
/// after "cannot train on".
struct Rehearsed {
  std::int64_t samples = 0;
  std::string when;
};

/// Returns what to rehearse before a training that begins at `position`: parts of batches that a
/// model may refuse though it takes the others. That is a single sample, as of the last batch of an
/// epoch, for nets of plugins and exported ones any last batch that is smaller, and for exported
/// ones a usual batch, too.
std::vector<Rehearsed> to_rehearse(const TrainOptions& options, const Layout& layout,
    const EpochRule& rule, const EpochPosition& position = {});

/// Computes forward passes of these numbers of samples in the modes of training, so that what the
/// model does not take is known before the first step and not at the end of an epoch. Parameters
/// and buffers stay as they are, on the device.
///
/// Throws InvalidArgument with what the model says and what to do.
void rehearse(const TrainOptions& options, const SampleForm& form, const Task& task,
    nn::Model& model, const StartWeights& start, const std::vector<Rehearsed>& all,
    torch::Device device = torch::kCPU);

/// A batch that is made up, and a net's output for it.
struct Tried {
  Batch batch;
  torch::Tensor output;
};

/// Computes the output of a net for two samples, in evaluation; `inputs` are what it is given of a
/// batch. Parameters and buffers stay as they are. Throws InvalidArgument with what the model says.
Tried try_model(const TrainOptions& options, const SampleForm& form,
    const std::function<std::vector<torch::Tensor>(const Batch&)>& inputs, nn::Model& model);

/// Computes the output of a net for two samples, and measures it, so that shapes that do not fit
/// are known before the first step; a classification is left to its steps. Parameters and buffers
/// stay as they are.
///
/// Throws InvalidArgument with the shapes, or with what the model says.
void check_task(
    const TrainOptions& options, const SampleForm& form, const Task& task, nn::Model& model);

/// Begins the scope in which a model computes with that precision on that type of device.
inline nn::Autocast autocast_of(Precision precision, torch::DeviceType device) {
  const auto type = precision == Precision::k16Mixed ? at::kHalf : at::kBFloat16;
  return nn::Autocast(device, type, precision != Precision::k32);
}

/// Throws InvalidArgument unless the model has a layer for each stage.
void check_stages(const TrainOptions& options, const Layout& layout, const nn::Model& model);

/// Returns how many layers of a model each stage takes, by the options' rule. Rank 0 measures for
/// all, on its device, and leaves the model there. A collective.
std::vector<int> stage_balance(const TrainOptions& options, const Layout& layout,
    const nn::Model& model, const SampleForm& form, const Task& task, torch::Device device,
    const ProcessGroup& world);

}  // namespace lockstep
