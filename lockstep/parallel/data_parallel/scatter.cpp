#include "lockstep/parallel/data_parallel/scatter.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/core/error.h"

namespace lockstep::data_parallel {
namespace {

bool can_be_joined(const torch::Tensor& tensor, torch::Device device) {
  return tensor.defined() && !tensor.is_cpu() && !device.is_cpu() && tensor.device() != device &&
         tensor.layout() == torch::kStrided && tensor.is_non_overlapping_and_dense();
}

// Its elements in the order of memory.
torch::Tensor flat(const torch::Tensor& tensor) { return tensor.as_strided({tensor.numel()}, {1}); }

using Indices = std::vector<std::size_t>;

void copy_joined(
    std::vector<torch::Tensor>& tensors, const Indices& indices, torch::Device device) {
  std::vector<torch::Tensor> rows;
  for (const std::size_t index : indices) rows.push_back(flat(tensors[index]));
  const torch::Tensor all = at::cat(rows).to(device, /*non_blocking=*/true);
  std::int64_t begin = 0;
  for (const std::size_t index : indices) {
    torch::Tensor& tensor = tensors[index];
    const std::int64_t size = tensor.numel();
    tensor = all.narrow(0, begin, size).as_strided(tensor.sizes(), tensor.strides());
    begin += size;
  }
}

// Below this a hand-over to the threads costs more than the sum.
constexpr std::int64_t kElementsWorthThreads = std::int64_t{1} << 16;

/// The sum of one tensor's gradients as it comes about.
struct Sum {
  torch::Tensor total;
  std::vector<torch::Tensor> rest;  ///< still to be added, in this order
};

/// Returns whether nobody else sees this memory, so that it may hold the sum.
bool is_ours(const torch::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         tensor.is_non_overlapping_and_dense();
}

bool is_flat_like(const torch::Tensor& a, const torch::Tensor& b) {
  return a.layout() == torch::kStrided && b.layout() == torch::kStrided &&
         a.is_non_overlapping_and_dense() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

/// Returns whether the elements of total and rest lie in memory in one order, without holes.
bool is_flat(const Sum& sum) {
  return std::all_of(sum.rest.begin(), sum.rest.end(),
      [&](const torch::Tensor& gradient) { return is_flat_like(sum.total, gradient); });
}

/// Brings a replica's gradients together to the module's device, where it has only one.
void bring_together(
    std::vector<torch::Tensor>& gradients, const std::vector<torch::Device>& devices) {
  const bool is_one = std::all_of(devices.begin(), devices.end(),
      [&](const torch::Device& device) { return device == devices.front(); });
  if (is_one && !devices.empty()) gradients = copied_together(gradients, devices.front());
}

/// Takes one tensor's gradients from the lists of the replicas.
Sum take(
    std::vector<std::vector<torch::Tensor>>& gradients, std::size_t tensor, torch::Device device) {
  Sum sum;
  for (auto& of_replica : gradients) {
    torch::Tensor gradient = std::exchange(of_replica[tensor], {});
    if (!gradient.defined()) continue;
    if (gradient.device() != device) gradient = gradient.to(device);
    if (sum.total.defined()) {
      sum.rest.push_back(std::move(gradient));
    } else {
      sum.total = std::move(gradient);
    }
  }
  return sum;
}

void add(torch::Tensor& total, const torch::Tensor& gradient) {
  // Dense plus sparse is defined, sparse plus dense is not.
  if (total.is_sparse() && !gradient.is_sparse()) total = total.to_dense();
  total = total.add(gradient);
}

void add_stretches(const std::vector<Sum*>& sums, const std::vector<Stretch>& stretches) {
  for (const Stretch& stretch : stretches) {
    const Sum& sum = *sums[stretch.tensor];
    auto total = flat(sum.total).narrow(0, stretch.first, stretch.size);
    for (const torch::Tensor& gradient : sum.rest) {
      total.add_(flat(gradient).narrow(0, stretch.first, stretch.size));
    }
  }
}

void add_in_threads(const std::vector<Sum*>& sums, ReplicaThreads& threads) {
  std::vector<std::int64_t> sizes;
  for (const Sum* sum : sums) sizes.push_back(sum->total.numel());
  const bool large = sums.front()->total.is_cpu() && std::accumulate(sizes.begin(), sizes.end(),
                                                         std::int64_t{0}) >= kElementsWorthThreads;
  const auto shares = divide_elements(sizes, large ? threads.size() : 1);
  if (!large) return add_stretches(sums, shares.front());
  threads.run(threads.size(), [&](std::size_t share) {
    const torch::NoGradGuard no_grad;
    add_stretches(sums, shares[share]);
  });
}

}  // namespace

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

std::vector<std::vector<Stretch>> divide_elements(
    const std::vector<std::int64_t>& sizes, std::size_t shares) {
  const auto all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const auto count = static_cast<std::int64_t>(shares);
  std::vector<std::vector<Stretch>> divided(shares);
  std::int64_t before = 0;  // elements of the tensors before this one
  for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
    for (std::int64_t share = 0; share < count; ++share) {
      const auto first = std::max(all * share / count, before);
      const auto end = std::min(all * (share + 1) / count, before + sizes[tensor]);
      if (first < end) {
        divided[static_cast<std::size_t>(share)].push_back({tensor, first - before, end - first});
      }
    }
    before += sizes[tensor];
  }
  return divided;
}

std::vector<torch::Tensor> sum_gradients(std::vector<std::vector<torch::Tensor>> gradients,
    const std::vector<torch::Device>& devices, ReplicaThreads& threads) {
  const torch::NoGradGuard no_grad;
  for (auto& of_replica : gradients) bring_together(of_replica, devices);
  std::vector<Sum> sums;
  for (std::size_t tensor = 0; tensor < devices.size(); ++tensor) {
    sums.push_back(take(gradients, tensor, devices[tensor]));
  }
  std::vector<Sum*> for_threads;
  for (Sum& sum : sums) {
    if (sum.rest.empty()) continue;
    if (sum.total.layout() == torch::kStrided && !is_ours(sum.total)) sum.total = sum.total.clone();
    if (is_flat(sum)) {
      for_threads.push_back(&sum);
    } else {
      for (const torch::Tensor& gradient : sum.rest) add(sum.total, gradient);
    }
  }
  if (!for_threads.empty()) add_in_threads(for_threads, threads);
  std::vector<torch::Tensor> totals;
  for (Sum& sum : sums) totals.push_back(std::move(sum.total));
  return totals;
}

}  // namespace lockstep::data_parallel
