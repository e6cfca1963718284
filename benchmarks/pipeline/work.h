#pragma once

#include <cstdint>
#include <string>

#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/pipeline_core.h"

namespace lockstep::benchmark {

/// The size of a step of training.
struct WorkSize {
  std::string model = "chain";   ///< `chain` of equal linear layers, or a net of nn::make_model()
  std::int64_t micro_batch = 0;  ///< samples
  std::int64_t width = 0;        ///< of the chain's layers
  std::int64_t depth = 0;        ///< of the chain: layers, a multiple of 4
  std::int64_t image_size = 0;   ///< of a net: its images are [3, size, size]
};

/// A model as a chain of layers with a loss, and the batch that it is trained on.
struct Work {
  Layers layers;
  LossFunction loss;
  torch::Tensor input, target;  ///< one batch

  /// Cuts the layers into stages that take equally long.
  std::vector<int> balance(int stages) const;

  bool is_chain = true;
  std::int64_t micro_batch = 0;
};

/// Makes the work of a size with a batch of so many micro-batches; the same in every process.
Work make_work(const WorkSize& size, int micro_batches);

}  // namespace lockstep::benchmark
