#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/loader.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/train/layout.h"
#include "lockstep/train/options.h"

namespace lockstep {

/// Are the groups that a rank of a training run belongs to.
struct RankGroups {
  ProcessGroup world;
  ProcessGroup replicas;  ///< ranks that hold the same parameters and train on other samples
  ProcessGroup stages;    ///< ranks that hold the stages of one model and train on the same samples
};

/// Divides the ranks by a layout. A collective.
RankGroups make_rank_groups(const ProcessGroup& world, const Layout& layout);

/// Is what the model is to learn: the form of an image, [channels, height, width], and how many
/// classes there are.
struct Task {
  std::vector<std::int64_t> image;
  std::int64_t classes = 0;
};

/// Is what one rank trains: the model or its part of it, with its optimizer, spread as asked.
class Replica {
 public:
  Replica(const TrainOptions& options, const Layout& layout, const RankGroups& groups);
  virtual ~Replica() = default;

  /// Gives the scores of images, as float whatever the precision; for evaluation. A collective of
  /// the stages.
  torch::Tensor scores(const torch::Tensor& images);

  /// Makes one optimizer step and gives the mean loss over the batch. A collective.
  torch::Tensor step(const Batch& batch);

  virtual void set_training(bool training) = 0;

  /// Gives the parameters that this rank holds.
  virtual std::vector<torch::Tensor> parameters() const = 0;

  /// Counts the seconds that this rank has waited for others since the start.
  virtual double communication_seconds() const { return 0; }

  /// Gives the type of images that the model computes fastest with.
  torch::ScalarType image_type() const { return bf16_ ? torch::kBFloat16 : torch::kFloat; }

 protected:
  /// Makes the optimizer once the parameters are there.
  void make_optimizer();

 private:
  virtual torch::Tensor evaluate(const torch::Tensor& images) = 0;
  virtual torch::Tensor forward_and_backward(const Batch& batch) = 0;

  bool bf16_;
  OptimizerSettings settings_;
  int replicas_;
  RankGroups groups_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

/// Makes what this rank trains, from the options' seed, computing in `places`. A collective.
std::unique_ptr<Replica> make_replica(
    const TrainOptions& options,
    const Layout& layout,
    const Task& task,
    const RankGroups& groups,
    const std::vector<Place>& places);

}  // namespace lockstep
