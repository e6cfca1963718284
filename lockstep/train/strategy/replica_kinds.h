#pragma once

// The kinds of Replica, one for each way of spreading a model.

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/device/parameters.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {

/// A whole model: alone, divided over places by DataParallel, or one of those that
/// DistributedDataParallel keeps alike.
class ModuleReplica final : public Replica {
 public:
  ModuleReplica(const TrainOptions& options, const RankGroups& groups,
      const PreparedModel& prepared, const std::vector<Place>& places);
  std::vector<torch::Tensor> parameters() const override { return parameters_of(*model_); }
  nn::NamedTensors state() const override { return nn::named_state(*model_); }
  double communication_seconds() const override;

 private:
  void train(bool on) override { model_->train(on); }
  nn::Model copy_of_whole_model() override;
  torch::Tensor evaluate(const std::vector<torch::Tensor>& inputs) override {
    return threads_ ? (*threads_)(inputs) : model_->forward(inputs);
  }
  torch::Tensor forward_and_backward(
      const Batch& batch, const LossFunction& loss, bool is_last_part) override;
  torch::Tensor forward(const std::vector<torch::Tensor>& inputs);

  std::shared_ptr<nn::MultiInputModule> model_;
  std::optional<DataParallel<std::shared_ptr<nn::MultiInputModule>>> threads_;
  std::optional<DistributedDataParallel<std::shared_ptr<nn::MultiInputModule>>> ranks_;
};

/// A model whose stages are threads of this process; other ranks may hold replicas of it.
class PipelineReplica final : public Replica {
 public:
  PipelineReplica(const TrainOptions& options, const RankGroups& groups,
      const PreparedModel& prepared, const std::vector<Place>& places);
  std::vector<torch::Tensor> parameters() const override { return pipeline_.parameters(); }
  nn::NamedTensors state() const override { return nn::named_state(layers_); }

 private:
  void train(bool on) override { pipeline_.train(on); }
  torch::Tensor evaluate(const std::vector<torch::Tensor>& inputs) override {
    return pipeline_(inputs.front());
  }
  torch::Tensor forward_and_backward(
      const Batch& batch, const LossFunction& loss, bool is_last_part) override;

  Layers layers_;
  Pipeline pipeline_;
};

/// One stage, or several, of a model whose others are on other ranks.
class StageReplica final : public Replica {
 public:
  StageReplica(const TrainOptions& options, const RankGroups& groups, const PreparedModel& prepared,
      torch::Device device);
  std::vector<torch::Tensor> parameters() const override { return stage_.parameters(); }
  nn::NamedTensors state() const override { return nn::named_state(stage_.layers()); }
  double communication_seconds() const override { return waited_seconds_; }

 private:
  void train(bool on) override { stage_.train(on); }
  torch::Tensor evaluate(const std::vector<torch::Tensor>& inputs) override {
    return stage_(inputs.front());
  }
  torch::Tensor forward_and_backward(
      const Batch& batch, const LossFunction& loss, bool is_last_part) override;

  PipelineStage stage_;
  double waited_seconds_ = 0;
};

}  // namespace lockstep
