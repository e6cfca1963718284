#pragma once

// For kernels, as simd/vectors.h is.
//
// Note [Sums in registers]
//
// Matrix products are computed strip by panel. A strip is some rows of the left matrix, as many as
// leave registers for two vectors of a panel of the right one and a factor; all sums are registers:
//
//     depth      strip           panel                      first  second
//       i        a0 a1 .. a5     vector0  vector1           += ar * vector0, += ar * vector1
//
// A virtual machine's core is often one of two threads of a core, and when both are busy, each of
// them begins half as many instructions in a cycle. So little is left besides what computes: 21
// instructions for 12 multiply-adds with AVX2. A plain loop has 29, for it counts each step and
// computes an address for each row, and takes a quarter longer there; alone on a core it is as
// fast.

#include "lockstep/simd/vectors.h"

namespace lockstep::nn::linear {
namespace {

constexpr std::int64_t kPanel = 2 * simd::kLanes;
constexpr int kMostStripRows = simd::kLanes == 16 ? 14 : 6;
constexpr int kDepths = 4;  // for which a loop counts once

/// The elements of a strip, by row and by depth from the present one on. kAlongDepth says whether
/// those of a row are contiguous, or else those of a column.
template <int kRows, bool kAlongDepth>
class StripElements {
 public:
  // Were the compiler to know how far apart the pointers are, it would make one of them.
  StripElements(const float* strip, std::int64_t stride) : stride_(stride) {
    for (int i = 0; i < kPointers; ++i) {
      pointers_[i] = strip + i * kRowsOfPointer * stride;
      asm("" : "+r"(pointers_[i]));
    }
  }

  simd::Floats at(int row, int depth) const {
    return simd::all(kAlongDepth ? of_row(row)[depth] : pointers_[0][depth * stride_ + row]);
  }

  void advance(int depths) {
#pragma GCC unroll 16
    for (const float*& pointer : pointers_) pointer += kAlongDepth ? depths : depths * stride_;
  }

  // Of a row that may be behind the strip, at the present depth.
  const float* of_row(int row) const {
    const int pointer = row < kRows ? row / kRowsOfPointer : 0;
    return pointers_[pointer] + (row - pointer * kRowsOfPointer) * stride_;
  }

  std::int64_t stride() const { return stride_; }

 private:
  // A row is addressed by a pointer and no, one or two strides.
  static constexpr int kRowsOfPointer = 3;
  static constexpr int kPointers = kAlongDepth ? (kRows + kRowsOfPointer - 1) / kRowsOfPointer : 1;

  const float* pointers_[kPointers];
  std::int64_t stride_;
};

/// The sums of kRows rows by the vectors of a panel.
template <int kRows>
struct StripSums {
  simd::Floats first[kRows] = {}, second[kRows] = {};

  /// Adds the products over a depth, from the elements' present one on. fetch(elements, i) is
  /// called before each kDepths of it.
  template <bool kAlongDepth, typename Fetch>
  [[gnu::always_inline]] void add(StripElements<kRows, kAlongDepth> elements, const float* panel,
      std::int64_t inner, const Fetch& fetch) {
    std::int64_t i = 0;
    for (; i + kDepths <= inner; i += kDepths, panel += kDepths * kPanel) {
      fetch(elements, i);
#pragma GCC unroll 4
      for (int depth = 0; depth < kDepths; ++depth) add_one(elements, panel, depth);
      elements.advance(kDepths);
    }
    for (; i < inner; ++i, panel += kPanel) {
      add_one(elements, panel, 0);
      elements.advance(1);
    }
  }

 private:
  template <bool kAlongDepth>
  [[gnu::always_inline]] void add_one(
      const StripElements<kRows, kAlongDepth>& elements, const float* panel, int depth) {
    const float* const vectors = panel + depth * kPanel;
    const simd::Floats right0 = simd::load(vectors), right1 = simd::load(vectors + simd::kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const simd::Floats factor = elements.at(row, depth);
      first[row] += factor * right0;
      second[row] += factor * right1;
    }
  }
};

}  // namespace
}  // namespace lockstep::nn::linear
