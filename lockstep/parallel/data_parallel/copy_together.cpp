#include "lockstep/parallel/data_parallel/copy_together.h"

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace lockstep::data_parallel {
namespace {

bool can_be_joined(const torch::Tensor& tensor, torch::Device device) {
  return tensor.defined() && !tensor.is_cpu() && !device.is_cpu() && tensor.device() != device &&
         tensor.layout() == torch::kStrided && tensor.is_non_overlapping_and_dense();
}

// In the order of memory.
torch::Tensor in_a_row(const torch::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1});
}

using Indices = std::vector<std::size_t>;

void copy_joined(
    std::vector<torch::Tensor>& tensors, const Indices& indices, torch::Device device) {
  std::vector<torch::Tensor> rows;
  for (const std::size_t index : indices) rows.push_back(in_a_row(tensors[index]));
  const torch::Tensor all = at::cat(rows).to(device, /*non_blocking=*/true);
  std::int64_t begin = 0;
  for (const std::size_t index : indices) {
    torch::Tensor& tensor = tensors[index];
    const std::int64_t size = tensor.numel();
    tensor = all.narrow(0, begin, size).as_strided(tensor.sizes(), tensor.strides());
    begin += size;
  }
}

}  // namespace

std::vector<torch::Tensor> copied_together(
    const std::vector<torch::Tensor>& tensors, torch::Device device) {
  const torch::NoGradGuard no_grad;
  std::map<std::pair<std::string, torch::ScalarType>, Indices> alike;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const torch::Tensor& tensor = tensors[index];
    if (can_be_joined(tensor, device))
      alike[{tensor.device().str(), tensor.scalar_type()}].push_back(index);
  }
  std::vector<torch::Tensor> copied = tensors;
  for (const auto& [form, indices] : alike)
    if (indices.size() > 1) copy_joined(copied, indices, device);
  return copied;
}

}  // namespace lockstep::data_parallel
