#pragma once

#include <cstdint>
#include <span>
#include <tuple>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/lstm_kernel.h"
#include "lockstep/nn/linear/gemm_kernel.h"

namespace lockstep::nn::fused {

/// Builds for one instruction set: of the loops, and of the products between them.
struct LstmKernels {
  const LstmKernel& cells;
  const linear::GemmKernel& products;
};

/// Returns the kernels that may run, the fastest last.
std::span<const LstmKernels> lstm_kernels();

/// The arguments of LibTorch's lstm. N sequences take T steps.
struct LstmCall {
  const at::Tensor& input;    ///< [T, N, inputs], or [N, T, inputs] with `batch_first`
  at::TensorList states;      ///< two of [layers x directions, N, width]: first states and cells
  at::TensorList parameters;  ///< of each layer and direction [4 width, inputs], [4 width, width]
                              ///< and, with `has_biases`, two of [4 width]
  bool has_biases;
  std::int64_t layers;
  double dropout;  ///< behind each layer but the last, while training
  bool is_training, is_bidirectional, batch_first;
  /// Or [T, N] ([N, T]) of int64: where each item's row is in the input, then [rows, inputs]. The
  /// first layer multiplies a row once, however often it stands in the sequences.
  at::Tensor places = {};
};

/// Outputs [T, N, directions x width], or [N, T, ...]; last states and cells as the first ones.
using LstmResults = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// Returns whether the kernels can: all in fp32 on the CPU, not empty, states as wide as cells.
bool is_lstm_own(const LstmCall& call);

/// Computes what is_lstm_own() allows, within 1e-5 of the values' size. What all steps multiply at
/// once is ours or LibTorch's as in linear/linear.h; if it is ours, the bits are the same for any
/// number of threads. A backward that is to be differentiated again is LibTorch's.
LstmResults own_lstm(const LstmKernels& kernels, const LstmCall& call);

/// Returns whether kernels_in_use() says that the kernels compute it, and not autocast.
bool is_lstm_for_own(const LstmCall& call);

/// LibTorch's lstm on the CPU, by the kernels where kernels_in_use() says so; under autocast in
/// fp32 where LibTorch's fails on this processor.
LstmResults dispatched_lstm(const at::Tensor& input, at::TensorList states,
    at::TensorList parameters, bool has_biases, std::int64_t layers, double dropout,
    bool is_training, bool is_bidirectional, bool batch_first);

}  // namespace lockstep::nn::fused
