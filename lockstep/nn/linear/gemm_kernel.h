#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include <cstdint>

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::linear {

/// A matrix by its strides in floats, one of which is 1.
struct MatrixView {
  const float* data;
  std::int64_t row_stride, column_stride;
};

/// products = left x right + bias, or += with `adds`, where the rows of products are contiguous.
struct Gemm {
  MatrixView left;   ///< [rows, inner]
  MatrixView right;  ///< [inner, columns]
  std::int64_t rows, columns, inner;
  const float* bias;  ///< [columns], or none
  float* products;
  std::int64_t product_stride;  ///< from one row to the next
  bool adds = false;
};

/// The most depth of products by skipping_zeros.
constexpr std::int64_t kMostSkippingDepth = 512;

/// One build of the matrix product of Note [Matrix products].
struct GemmKernel {
  const char* name;
  std::int64_t (*tasks)(const Gemm& gemm);
  std::int64_t (*scratch_floats)(const Gemm& gemm);
  /// Computes some of the tasks, in scratch of its own. What an element is depends on no other.
  void (*multiply)(const Gemm& gemm, Range tasks, float* scratch);

  // For a right matrix that one product after the other reads.
  std::int64_t (*panels)(const Gemm& gemm);         ///< into which it is cut
  std::int64_t (*packed_floats)(const Gemm& gemm);  ///< of the copy of all panels
  void (*pack)(const Gemm& gemm, Range panels, float* packed);
  /// Computes a product, to the bit as multiply() does, from the copy in place of the right matrix.
  void (*multiply_packed)(const Gemm& gemm, const float* packed);

  /// Returns the build that is faster where the left matrix has many zeros, Note [Products that
  /// skip zeros]: for right matrices of contiguous rows, without bias or `adds`. Of a depth up to
  /// kMostSkippingDepth its products are the same bits. Null in such a build.
  const GemmKernel& (*skipping_zeros)();
};

const GemmKernel& gemm_plain();
const GemmKernel& gemm_avx2();
const GemmKernel& gemm_avx512();

const GemmKernel& skipping_gemm_plain();
const GemmKernel& skipping_gemm_avx2();
const GemmKernel& skipping_gemm_avx512();

}  // namespace lockstep::nn::linear
