#include "sparse.h"

#include <vector>

#include "pieces.h"
#include <ATen/OpMathType.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep::python {
namespace {

/// Gathers the numbers of elements, and the shapes, which must be equal.
at::Tensor gathered_counts(const ProcessGroup& group, const at::Tensor& tensor) {
  std::vector<std::int64_t> facts{tensor._nnz(), tensor.sparse_dim()};
  facts.insert(facts.end(), tensor.sizes().begin(), tensor.sizes().end());
  const at::Tensor own = torch::tensor(facts, on_host(at::kLong));
  const at::Tensor all = at::empty({group.size(), own.numel()}, own.options());
  group.all_gather(all, own).wait();
  check(all.slice(1, 1).eq(own.slice(0, 1)).all().item<bool>(),
      "all_reduce: sparse tensors must have one shape on all ranks; here it is ", tensor.sizes());
  return all.select(1, 0);
}

/// Gathers rows, of which each rank has a number of its own: it sends as many as the most.
at::Tensor gathered_rows(
    const ProcessGroup& group, const at::Tensor& own, const at::Tensor& counts) {
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.front() = counts.max().item<std::int64_t>();
  const at::Tensor padded = at::empty(sizes, own.options());
  padded.narrow(0, 0, own.size(0)).copy_(own);
  sizes.insert(sizes.begin(), group.size());
  const at::Tensor all = at::empty(sizes, own.options());
  group.all_gather(as_real(all), as_real(padded)).wait();
  std::vector<at::Tensor> rows;
  for (int rank = 0; rank < group.size(); ++rank)
    rows.push_back(all[rank].narrow(0, 0, counts[rank].item<std::int64_t>()));
  return at::cat(rows);
}

}  // namespace

at::Tensor sum_of_sparse(const ProcessGroup& group, const at::Tensor& tensor) {
  const at::Tensor own = tensor.detach().coalesce();
  const at::Tensor counts = gathered_counts(group, own);
  const at::Tensor indices = gathered_rows(group, own.indices().t(), counts);
  const at::Tensor values = gathered_rows(group, own.values(), counts);
  // Of 16 bits they are added up in 32.
  const auto type = at::toOpMathType(own.scalar_type());
  const at::Tensor all =
      at::_sparse_coo_tensor_unsafe(indices.t(), values.to(type), own.sizes()).coalesce();
  return all.to(own.scalar_type());
}

}  // namespace lockstep::python
