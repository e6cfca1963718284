#include "lockstep/parallel/pipeline/micro_batch.h"

#include "lockstep/core/error.h"

namespace lockstep {

std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch, int chunks) {
  check(chunks >= 1, "pipeline: a batch is cut into at least one micro-batch, not ", chunks);
  check(batch >= 1, "pipeline: the batch is empty");
  std::vector<std::int64_t> sizes;
  for (std::int64_t chunk = 0; chunk < chunks && chunk < batch; ++chunk)
    sizes.push_back(batch / chunks + (chunk < batch % chunks ? 1 : 0));
  return sizes;
}

std::vector<torch::Tensor> split_batch(
    const torch::Tensor& batch, const std::vector<std::int64_t>& sizes) {
  return batch.split_with_sizes(sizes, 0);
}

}  // namespace lockstep
