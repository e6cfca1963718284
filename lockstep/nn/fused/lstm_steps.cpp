#include "lockstep/nn/fused/lstm_steps.h"

#include <ATen/ops/empty.h>

#include "lockstep/device/host_tensor.h"

namespace lockstep::nn::fused {

PackedProduct::PackedProduct(const linear::GemmKernel& kernel, const linear::MatrixView& matrix,
    std::int64_t inner, std::int64_t columns, bool adds)
    : kernel_(kernel),
      product_{.left = {},
          .right = matrix,
          .rows = 0,
          .columns = columns,
          .inner = inner,
          .bias = nullptr,
          .products = nullptr,
          .product_stride = columns,
          .adds = adds},
      packed_(at::empty({kernel.packed_floats(product_)}, on_host(at::kFloat))) {
  auto* const to = packed_.mutable_data_ptr<float>();
  in_parallel(kernel.panels(product_), [&](Range panels) { kernel.pack(product_, panels, to); });
}

void PackedProduct::compute(
    const float* rows, std::int64_t stride, std::int64_t count, float* products) const {
  linear::Gemm product = product_;
  product.left = {rows, stride, 1};
  product.rows = count;
  product.products = products;
  kernel_.multiply_packed(product, packed_.const_data_ptr<float>());
}

void LstmCourse::run(Range sequences) const {
  const std::int64_t count = sequences.end - sequences.begin, width = shape.width;
  const auto copy = at::empty({count, width}, on_host(at::kFloat));
  auto* const state = copy.mutable_data_ptr<float>();
  std::copy_n(states + sequences.begin * width, count * width, state);
  const float* before = cells_before + sequences.begin * width;
  for (std::int64_t step = 0; step < shape.steps; ++step) {
    const std::int64_t row = shape.row_of(step, direction) + sequences.begin;
    if (places != nullptr) take_sums(row, count);
    of_state.compute(state, width, count, gates + row * 4 * width);
    kernel.forward({.rows = count,
        .width = width,
        .gates = gates + row * 4 * width,
        .cells_before = before,
        .cells = cells + row * width,
        .outputs = outputs + row * shape.outputs() + direction * width,
        .output_stride = shape.outputs(),
        .states = state});
    before = cells + row * width;
  }
}

void LstmCourse::take_sums(std::int64_t row, std::int64_t count) const {
  const std::int64_t size = 4 * shape.width;
  for (std::int64_t i = row; i < row + count; ++i)
    std::copy_n(sums_of_rows + places[i] * size, size, gates + i * size);
}

void LstmCourseBack::run(Range sequences) const {
  const std::int64_t count = sequences.end - sequences.begin, width = shape.width;
  const std::int64_t first = sequences.begin * width, numbers = count * width;
  const auto scratch = at::empty({2, count, width}, on_host(at::kFloat));
  auto* const of_states = scratch.mutable_data_ptr<float>();
  float* const of_cells = of_states + numbers;
  std::copy_n(of_last_states + first, numbers, of_states);
  std::copy_n(of_last_cells + first, numbers, of_cells);
  for (std::int64_t step = shape.steps - 1; step >= 0; --step) {
    const std::int64_t row = shape.row_of(step, direction) + sequences.begin;
    const float* const before =
        step == 0 ? first_cells + first
                  : cells + (shape.row_of(step - 1, direction) + sequences.begin) * width;
    kernel.backward({.rows = count,
        .width = width,
        .gates = gates + row * 4 * width,
        .cells_before = before,
        .cells = cells + row * width,
        .of_outputs = of_outputs + row * shape.outputs() + direction * width,
        .output_stride = shape.outputs(),
        .of_states = of_states,
        .of_cells = of_cells,
        .of_sums = of_sums + row * sum_stride,
        .sum_stride = sum_stride});
    if (step > 0 || of_first_states != nullptr)
      of_sum.compute(of_sums + row * sum_stride, sum_stride, count, of_states);
  }
  if (of_first_states == nullptr) return;
  std::copy_n(of_states, numbers, of_first_states + first);
  std::copy_n(of_cells, numbers, of_first_cells + first);
}

}  // namespace lockstep::nn::fused
