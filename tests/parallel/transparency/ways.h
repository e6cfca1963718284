#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/pipeline/pipeline_core.h"

namespace lockstep::testing {

/// A model to train, and what with. The model is not changed.
struct Problem {
  nn::Model model{nullptr};
  torch::Tensor images, labels;
  int steps = 5;
};

/// The results of training, in the order of the model's parameters.
struct Trained {
  std::vector<double> losses;
  torch::Tensor output;  ///< of the images after training, in evaluation mode
  std::map<std::string, torch::Tensor> gradients, parameters;
};

/// Makes a model with its images and labels; everything follows from the seed.
Problem make_problem(const std::string& model, const std::vector<std::int64_t>& images,
    torch::ScalarType type, std::uint64_t seed = 1);

/// Trains a copy of the model alone: the reference. With micro-batches, their gradients add up in
/// order before each step, each normalised by its own statistics.
Trained train_serially(const Problem& problem, int micro_batches = 1);

/// Train copies in the named way.
Trained train_data_parallel(const Problem& problem, int places);
Trained train_distributed(
    const Problem& problem, int ranks, std::int64_t bucket_bytes, bool sync_batch_norm = false);
Trained train_pipeline(
    const Problem& problem, const std::vector<int>& balance, int places, PipelineOptions options);
Trained train_stages(const Problem& problem, const std::vector<int>& balance, int ranks,
    int replicas, PipelineOptions options);
/// Replicas as ranks, each with a pipeline in one process.
Trained train_replicated_pipelines(const Problem& problem, const std::vector<int>& balance,
    int places, int replicas, PipelineOptions options);

/// Expects losses, output, gradients and parameters to agree, relative to the largest value of each
/// tensor.
void expect_same(const Trained& ours, const Trained& serial, double tolerance);

}  // namespace lockstep::testing
