#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include <cstdint>

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// One step in time of some sequences. Each has a row; the gates of a row are input, forget, cell
/// and output gate, each as wide as a state. Rows lie behind each other unless a stride is given.
struct LstmStep {
  std::int64_t rows, width;
  float* gates;               ///< [rows, 4 width]: what the gates are functions of; then the gates
  const float* cells_before;  ///< [rows, width]
  float* cells;               ///< [rows, width]
  float* outputs;             ///< [rows, width]
  std::int64_t output_stride;
  float* states;  ///< [rows, width], the same as outputs
};

/// The step backwards.
struct LstmStepGradients {
  std::int64_t rows, width;
  const float *gates, *cells_before, *cells;  ///< as the step left them
  const float* of_outputs;
  std::int64_t output_stride;
  const float* of_states;  ///< [rows, width], by the next step
  float* of_cells;         ///< [rows, width], by the next step; then by this one
  float* of_sums;          ///< [rows, 4 width], of what the gates are functions of
  std::int64_t sum_stride;
};

/// Rows that are added up by their places: sums[places[i]] += rows[i].
struct RowsByPlace {
  std::int64_t count, width;
  const float* rows;  ///< [count, width]
  std::int64_t stride;
  const std::int64_t* places;
  float* sums;  ///< [any, width]
};

/// One build of what an LSTM computes between its matrix products.
struct LstmKernel {
  const char* name;
  void (*forward)(const LstmStep& step);
  void (*backward)(const LstmStepGradients& step);
  void (*add_rows)(const RowsByPlace& job, Range columns);
};

const LstmKernel& lstm_plain();
const LstmKernel& lstm_avx2();
const LstmKernel& lstm_avx512();

}  // namespace lockstep::nn::fused
