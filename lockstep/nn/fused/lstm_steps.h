#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/lstm_kernel.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/linear/gemm_kernel.h"

namespace lockstep::nn::fused {

/// Of fewer sequences, a strip of the products is far from full.
inline constexpr std::int64_t kFewestSequences = 4;

/// The sizes of a layer.
struct LstmShape {
  std::int64_t steps, sequences, width, directions;

  std::int64_t rows() const { return steps * sequences; }
  std::int64_t outputs() const { return directions * width; }

  /// Returns the first row of a step; the second direction begins at the end.
  std::int64_t row_of(std::int64_t step, std::int64_t direction) const {
    return (direction == 0 ? step : steps - 1 - step) * sequences;
  }

  /// Calls body with each direction and some of the sequences, on all threads.
  template <typename Body>
  void each_task(const Body& body) const {
    const std::int64_t parts = parts_of_sequences();
    in_parallel(directions * parts, [&](Range tasks) {
      for (std::int64_t task = tasks.begin; task < tasks.end; ++task) {
        const std::int64_t part = task % parts;
        body(task / parts, Range{sequences * part / parts, sequences * (part + 1) / parts});
      }
    });
  }

 private:
  // Of more sequences, sums would leave the cache between two steps.
  std::int64_t parts_of_sequences() const {
    constexpr std::int64_t kMost = 128;
    const std::int64_t wanted = (at::get_num_threads() + directions - 1) / directions;
    return std::max((sequences + kMost - 1) / kMost,
        std::min(wanted, std::max(sequences / kFewestSequences, std::int64_t{1})));
  }
};

/// Products of some rows and a matrix, of which a packed copy is made.
class PackedProduct {
 public:
  /// The matrix is [inner, columns].
  PackedProduct(const linear::GemmKernel& kernel, const linear::MatrixView& matrix,
      std::int64_t inner, std::int64_t columns, bool adds);

  /// Computes, or adds, [count, columns] of rows that are `stride` apart.
  void compute(const float* rows, std::int64_t stride, std::int64_t count, float* products) const;

 private:
  const linear::GemmKernel& kernel_;
  linear::Gemm product_;
  at::Tensor packed_;
};

/// The steps of one direction.
struct LstmCourse {
  const LstmKernel& kernel;
  LstmShape shape;
  std::int64_t direction;
  PackedProduct of_state;              ///< state x recurrent weight^T
  const float *states, *cells_before;  ///< the first ones, [N, width]
  const float* sums_of_rows;           ///< [rows, 4 width]
  const std::int64_t* places;          ///< [T, N] in these; or none: the sums are in `gates`
  float *gates, *cells;                ///< [T, N, 4 width], [T, N, width]
  float* outputs;                      ///< [T, N, directions x width]

  void run(Range sequences) const;

 private:
  void take_sums(std::int64_t row, std::int64_t count) const;
};

/// The steps of one direction backwards.
struct LstmCourseBack {
  const LstmKernel& kernel;
  LstmShape shape;
  std::int64_t direction;
  PackedProduct of_sum;                         ///< gradients x recurrent weight
  const float *gates, *cells, *first_cells;     ///< as the steps left them
  const float* of_outputs;                      ///< [T, N, directions x width]
  const float *of_last_states, *of_last_cells;  ///< [N, width]
  float* of_sums;                               ///< [T N, 4 width]
  std::int64_t sum_stride;
  float *of_first_states, *of_first_cells;  ///< [N, width], or none

  void run(Range sequences) const;
};

}  // namespace lockstep::nn::fused
