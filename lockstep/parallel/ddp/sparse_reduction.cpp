#include "lockstep/parallel/ddp/sparse_reduction.h"

#include <algorithm>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

/// One rank's part: indices (dimensions x rows) and values (rows x the dense dimensions).
struct Rows {
  torch::Tensor indices, values;
};

Rows rows_of(const torch::Tensor& gradient) {
  const torch::Tensor coalesced = gradient.coalesce();
  return {coalesced.indices(), coalesced.values()};
}

Rows no_rows(const torch::Tensor& like, std::int64_t dimensions) {
  std::vector<std::int64_t> shape = like.sizes().slice(static_cast<std::size_t>(dimensions)).vec();
  shape.insert(shape.begin(), 0);
  return {torch::empty({dimensions, 0}, torch::TensorOptions(torch::kLong).device(like.device())),
      torch::empty(shape, like.options().requires_grad(false))};
}

// Pieces of a gather must be equally long.
torch::Tensor padded(const torch::Tensor& tensor, std::int64_t dimension, std::int64_t size) {
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape[static_cast<std::size_t>(dimension)] = size;
  torch::Tensor result = torch::zeros(shape, tensor.options());
  result.narrow(dimension, 0, tensor.size(dimension)).copy_(tensor);
  return result;
}

torch::Tensor room_for_all(const torch::Tensor& own, const ProcessGroup& group) {
  std::vector<std::int64_t> shape = own.sizes().vec();
  shape.insert(shape.begin(), group.size());
  return torch::empty(shape, own.options());
}

/// The shapes that all ranks reported of their parts.
struct Shape {
  std::vector<std::int64_t> rows;  // by rank
  std::int64_t longest = 0;
  std::int64_t dimensions = 1;  // that are indexed
};

Shape shape_of(const torch::Tensor& headers) {
  const torch::Tensor host = headers.cpu();
  const auto rows = host.select(1, 0).contiguous(), dimensions = host.select(1, 1).contiguous();
  const auto* first = rows.data_ptr<std::int64_t>();
  Shape shape{std::vector<std::int64_t>(first, first + rows.numel())};
  shape.longest = rows.max().item<std::int64_t>();
  shape.dimensions = std::max<std::int64_t>(1, dimensions.max().item<std::int64_t>());
  for (std::int64_t rank = 0; rank < rows.numel(); ++rank) {
    const auto own = dimensions[rank].item<std::int64_t>();
    check(own == 0 || own == shape.dimensions,
        "DistributedDataParallel: a sparse gradient indexes ", own, " dimensions on rank ", rank,
        " and ", shape.dimensions, " on another; it must be computed alike on all ranks");
  }
  return shape;
}

// In rank order; equal indices add up in that order on every rank.
torch::Tensor mean_of(const Rows& all, const Shape& shape, const torch::Tensor& like, int divisor) {
  std::vector<torch::Tensor> indices, values;
  for (std::size_t rank = 0; rank < shape.rows.size(); ++rank) {
    const auto at = static_cast<std::int64_t>(rank);
    indices.push_back(all.indices[at].narrow(1, 0, shape.rows[rank]));
    values.push_back(all.values[at].narrow(0, 0, shape.rows[rank]));
  }
  const torch::Tensor sum =
      torch::sparse_coo_tensor(torch::cat(indices, 1), torch::cat(values, 0), like.sizes())
          .coalesce();
  return torch::sparse_coo_tensor(sum.indices(), sum.values() / divisor, like.sizes())
      ._coalesced_(true);
}

}  // namespace

CommStep reduce_sparse(const torch::Tensor& gradient, const torch::Tensor& like,
    const ProcessGroup& group, int divisor, const std::function<void(torch::Tensor)>& receive) {
  const Rows own = gradient.defined() ? rows_of(gradient) : Rows{};
  const torch::Tensor header =
      gradient.defined() ? torch::tensor({own.indices.size(1), own.indices.size(0)}, torch::kLong)
                         : torch::zeros({2}, on_host(torch::kLong));
  const torch::Tensor on_device = header.to(like.device());
  const torch::Tensor headers = room_for_all(on_device, group);
  const auto finish = [=](const Rows& all, const Shape& shape) {
    receive(mean_of(all, shape, like, divisor));
    return CommStep{};
  };
  const auto exchange = [=]() -> CommStep {
    const Shape shape = shape_of(headers);
    const Rows rows = gradient.defined() ? own : no_rows(like, shape.dimensions);
    const Rows sent{padded(rows.indices, 1, shape.longest), padded(rows.values, 0, shape.longest)};
    const Rows all{room_for_all(sent.indices, group), room_for_all(sent.values, group)};
    Work indices = group.all_gather(all.indices, sent.indices);
    return {group.all_gather(all.values, sent.values), [=]() mutable {
              indices.wait();
              return finish(all, shape);
            }};
  };
  return {group.all_gather(headers, on_device), exchange};
}

}  // namespace lockstep
