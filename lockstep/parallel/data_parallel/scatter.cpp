#include "lockstep/parallel/data_parallel/scatter.h"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "lockstep/core/error.h"

namespace lockstep::data_parallel {

std::vector<std::int64_t> chunk_sizes(std::int64_t batch, std::size_t count) {
  check(count >= 1, "DataParallel: there must be at least one place: ", count);
  if (batch == 0) return {0};
  const auto pieces = static_cast<std::int64_t>(count);
  const std::int64_t size = (batch + pieces - 1) / pieces;
  std::vector<std::int64_t> sizes;
  for (std::int64_t first = 0; first < batch; first += size) {
    sizes.push_back(std::min(size, batch - first));
  }
  return sizes;
}

Division divide_batch(const std::vector<torch::Tensor>& tensors, std::size_t count) {
  Division division;
  std::size_t first = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) {
      division.sizes.emplace_back();
      continue;
    }
    check(tensors[i].dim() > 0, "DataParallel: tensor ", i,
        " of the inputs has no dimension to divide over the places; pass a plain number, or expand "
        "it to the batch");
    const auto& sizes = division.sizes.emplace_back(chunk_sizes(tensors[i].size(0), count));
    if (division.pieces == 0) first = i;
    if (division.pieces == 0) division.pieces = sizes.size();
    check(sizes.size() == division.pieces, "DataParallel: the inputs do not divide alike over ",
        count, " places: tensor ", first, " has ", tensors[first].size(0), " samples in ",
        division.pieces, " pieces, tensor ", i, " has ", tensors[i].size(0), " in ", sizes.size(),
        "; give all the same first dimension");
  }
  if (division.pieces == 0) division.pieces = count;
  return division;
}

torch::Tensor gather(const std::vector<torch::Tensor>& parts, torch::Device device) {
  const auto defined = std::count_if(
      parts.begin(), parts.end(), [](const torch::Tensor& part) { return part.defined(); });
  if (defined == 0) return {};
  check(static_cast<std::size_t>(defined) == parts.size(),
      "DataParallel: some replicas gave a tensor where others gave none");
  std::vector<torch::Tensor> here;
  for (const torch::Tensor& part : parts) {
    check(part.scalar_type() == parts.front().scalar_type(),
        "DataParallel: the replicas gave tensors of different types: ", parts.front().scalar_type(),
        ", ", part.scalar_type());
    here.push_back(part.to(device));
  }
  return parts.front().dim() == 0 ? at::stack(here) : at::cat(here);
}

}  // namespace lockstep::data_parallel
