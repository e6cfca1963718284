#include "lockstep/train/task/task.h"

#include <algorithm>
#include <array>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

using FindingsShape = std::array<std::int64_t, 3>;  // sums, rows, and numbers of a row

// Of all ranks, in their order. A collective.
std::vector<FindingsShape> shapes_of_all(const FindingsShape& own, const ProcessGroup& world) {
  const torch::Tensor all = at::empty({world.size(), std::ssize(own)}, on_host(torch::kLong));
  const torch::Tensor given = at::empty({std::ssize(own)}, on_host(torch::kLong));
  std::ranges::copy(own, given.data_ptr<std::int64_t>());
  world.all_gather(all, given).wait();
  std::vector<FindingsShape> shapes(static_cast<std::size_t>(world.size()));
  const auto* numbers = all.const_data_ptr<std::int64_t>();
  for (FindingsShape& shape : shapes) {
    std::copy_n(numbers, shape.size(), shape.begin());
    numbers += shape.size();
  }
  return shapes;
}

// Shorter ones are filled up on their way.
torch::Tensor rows_of_all(
    const torch::Tensor& own, const std::vector<FindingsShape>& shapes, const ProcessGroup& world) {
  std::int64_t most = 0, numbers = 0;
  for (const auto& [sums, rows, columns] : shapes) {
    most = std::max(most, rows);
    numbers = std::max(numbers, columns);
  }
  if (most == 0) return {};
  const torch::Tensor given = at::zeros({most, numbers}, on_host(torch::kDouble));
  if (own.defined()) given.narrow(0, 0, own.size(0)).copy_(own);
  const torch::Tensor all = at::empty({world.size(), most, numbers}, given.options());
  world.all_gather(all, given).wait();
  std::vector<torch::Tensor> parts;
  for (std::size_t rank = 0; rank < shapes.size(); ++rank)
    parts.push_back(all[static_cast<std::int64_t>(rank)].narrow(0, 0, shapes[rank][1]));
  return at::cat(parts);
}

}  // namespace

torch::Tensor sums_of(const std::vector<torch::Tensor>& numbers) {
  std::vector<torch::Tensor> sums;
  for (const torch::Tensor& number : numbers) sums.push_back(number.to(torch::kDouble));
  return at::stack(sums);
}

void FindingsSum::add(const Findings& batch) {
  if (sums_.defined()) {
    sums_.add_(batch.sums);
  } else {
    sums_ = batch.sums.clone();
  }
  if (batch.rows.defined()) rows_.push_back(batch.rows);
}

Findings FindingsSum::over_all(const ProcessGroup& world) const {
  Findings own;
  if (sums_.defined()) own.sums = sums_.cpu();
  if (!rows_.empty()) own.rows = at::cat(rows_).cpu();
  if (world.size() == 1 && own.sums.defined()) return own;  // rows may be most of the memory
  const bool has_rows = own.rows.defined();
  const auto shapes =
      shapes_of_all({own.sums.defined() ? own.sums.size(0) : Findings::kOwn,
                        has_rows ? own.rows.size(0) : 0, has_rows ? own.rows.size(1) : 0},
          world);
  const std::int64_t sums = std::ranges::max(shapes)[0];
  if (!own.sums.defined()) own.sums = at::zeros({sums}, on_host(torch::kDouble));
  world.all_reduce(own.sums).wait();
  return {own.sums, rows_of_all(own.rows, shapes, world)};
}

Evaluation Task::evaluation(const Findings& all) const {
  const auto* const sum = all.sums.const_data_ptr<double>();
  Evaluation result{.scores = {.loss = sum[Findings::kLoss] / sum[Findings::kCounted]},
      .samples = static_cast<std::int64_t>(sum[Findings::kSamples])};
  score(all, result);
  return result;
}

}  // namespace lockstep
