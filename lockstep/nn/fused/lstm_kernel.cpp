#include "lockstep/nn/fused/lstm_kernel.h"

#include "lockstep/nn/fused/activation_vectors.h"
#include "lockstep/simd/exponential.h"

namespace lockstep::nn::fused {
namespace {

using simd::each_vector;
using simd::Floats;
using simd::load;
using simd::store;

// By Cephes' tanhf: a polynomial near zero, where 1 - 2 / (e^2x + 1) would lose its last places.
inline Floats hyperbolic_tangent(Floats x) {
  const Floats size = x < 0.0F ? -x : x, square = x * x;
  Floats sum = square * -5.70498872745e-3F + 2.06390887954e-2F;
  constexpr float kFurther[] = {-5.37397155531e-2F, 1.33314422036e-1F, -3.33332819422e-1F};
  for (const float next : kFurther) sum = sum * square + next;
  const Floats near = sum * square * x + x;
  const Floats far = 1.0F - 2.0F / (simd::exponential(size * 2.0F) + 1.0F);
  const Floats signed_far = x < 0.0F ? -far : far;
  return size < 0.625F ? near : signed_far;
}

inline void lstm_forward(const LstmStep& step) {
  const std::int64_t width = step.width;
  for (std::int64_t row = 0; row < step.rows; ++row) {
    float* const gates = step.gates + row * 4 * width;
    const float* const before = step.cells_before + row * width;
    float* const outputs = step.outputs + row * step.output_stride;
    each_vector(width, [&](std::int64_t i, std::int64_t room) {
      const Floats input = sigmoid(load(gates + i, room));
      const Floats forget = sigmoid(load(gates + width + i, room));
      const Floats candidate = hyperbolic_tangent(load(gates + 2 * width + i, room));
      const Floats output = sigmoid(load(gates + 3 * width + i, room));
      const Floats cell = forget * load(before + i, room) + input * candidate;
      const Floats state = output * hyperbolic_tangent(cell);
      store(gates + i, input, room);
      store(gates + width + i, forget, room);
      store(gates + 2 * width + i, candidate, room);
      store(gates + 3 * width + i, output, room);
      store(step.cells + row * width + i, cell, room);
      store(outputs + i, state, room);
      store(step.states + row * width + i, state, room);
    });
  }
}

inline void lstm_backward(const LstmStepGradients& step) {
  const std::int64_t width = step.width;
  for (std::int64_t row = 0; row < step.rows; ++row) {
    const float *const gates = step.gates + row * 4 * width, *const cells =
                                                                 step.cells + row * width;
    const float* const before = step.cells_before + row * width;
    const float* const of_outputs = step.of_outputs + row * step.output_stride;
    const float* const of_states = step.of_states + row * width;
    float* const of_cells = step.of_cells + row * width;
    float* const of_sums = step.of_sums + row * step.sum_stride;
    each_vector(width, [&](std::int64_t i, std::int64_t room) {
      const Floats input = load(gates + i, room), forget = load(gates + width + i, room);
      const Floats candidate = load(gates + 2 * width + i, room);
      const Floats output = load(gates + 3 * width + i, room);
      const Floats bent = hyperbolic_tangent(load(cells + i, room));
      const Floats of_state = load(of_outputs + i, room) + load(of_states + i, room);
      const Floats of_cell = load(of_cells + i, room) + of_state * output * (1.0F - bent * bent);
      store(of_sums + i, of_cell * candidate * input * (1.0F - input), room);
      store(of_sums + width + i, of_cell * load(before + i, room) * forget * (1.0F - forget), room);
      store(of_sums + 2 * width + i, of_cell * input * (1.0F - candidate * candidate), room);
      store(of_sums + 3 * width + i, of_state * bent * output * (1.0F - output), room);
      store(of_cells + i, of_cell * forget, room);
    });
  }
}

inline void add_lstm_rows(const RowsByPlace& job, Range columns) {
  for (std::int64_t row = 0; row < job.count; ++row) {
    const float* const from = job.rows + row * job.stride + columns.begin;
    float* const to = job.sums + job.places[row] * job.width + columns.begin;
    each_vector(columns.end - columns.begin, [&](std::int64_t i, std::int64_t room) {
      store(to + i, load(to + i, room) + load(from + i, room), room);
    });
  }
}

}  // namespace

const LstmKernel& LOCKSTEP_BUILD(lstm)() {
  static constexpr LstmKernel kKernel{.name = LOCKSTEP_BUILD_NAME,
      .forward = lstm_forward,
      .backward = lstm_backward,
      .add_rows = add_lstm_rows};
  return kKernel;
}

}  // namespace lockstep::nn::fused
