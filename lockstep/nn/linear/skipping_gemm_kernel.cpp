#include "lockstep/nn/linear/gemm_kernel.h"
#include "lockstep/simd/vectors.h"

// Note [Products that skip zeros]
//
// Behind a ReLU about half of a gradient is zero. Of each row of the left matrix only the other
// elements are listed, as terms, and each is multiplied by its row of a panel of the right matrix.
// A panel has as many columns as there are registers for sums, and stays in the first-level cache:
//
//     left row  0 a 0 0 b c 0      terms  a, b, c      sums += a * panel[1]; += b * panel[4]; ...
//
// Where a panel has an infinity or NaN, zeros are terms, too.
//
// A term loads a vector for each product, so it costs a sixth more than in a dense product (Note
// [Matrix products]). The sums are added up in the order of the depth and are the same bits.
//
// The rows of a panel lie far apart, where a processor does not expect them: while one panel is
// multiplied, the next is fetched.

namespace lockstep::nn::linear {
namespace {

using simd::all;
using simd::Floats;
using simd::kLanes;
using simd::kLineFloats;
using simd::least;
using simd::load;
using simd::parts_of;
using simd::store;

constexpr int kSums = 8;
constexpr std::int64_t kColumns = kSums * kLanes, kMostRows = 1024;
constexpr std::int64_t kPanelFloats = 4096, kDepth = kPanelFloats / kColumns;

/// An element of the left matrix, and where its row of the panel begins.
struct Term {
  float factor;
  std::int32_t place;
};

inline std::int64_t panels_of(const Gemm& gemm) { return parts_of(gemm.columns, kColumns); }

/// The terms of some rows, kDepth of each at a time.
class TermLists {
 public:
  TermLists(const Gemm& gemm, Range rows, float* scratch)
      : gemm_(gemm),
        rows_(rows),
        counts_(reinterpret_cast<std::int32_t*>(scratch)),
        terms_(reinterpret_cast<Term*>(scratch + lists(gemm))) {
    for (std::int64_t step = 0; step < steps(gemm); ++step)
      for (std::int64_t row = rows.begin; row < rows.end; ++row)
        counts_[index(step, row)] =
            list(step, row, /*with_zeros=*/false, terms_ + index(step, row) * kDepth);
  }

  static std::int64_t steps(const Gemm& gemm) { return parts_of(gemm.inner, kDepth); }

  static std::int64_t floats(const Gemm& gemm) {
    return lists(gemm) * (1 + kDepth * static_cast<std::int64_t>(sizeof(Term) / sizeof(float)));
  }

  const Term* terms(std::int64_t step, std::int64_t row) const {
    return terms_ + index(step, row) * kDepth;
  }

  std::int64_t count(std::int64_t step, std::int64_t row) const {
    return counts_[index(step, row)];
  }

  /// Lists all terms of a row, zeros too, in `to`; returns how many.
  std::int64_t list_all(std::int64_t step, std::int64_t row, Term* to) const {
    return list(step, row, /*with_zeros=*/true, to);
  }

 private:
  static std::int64_t lists(const Gemm& gemm) { return steps(gemm) * least(gemm.rows, kMostRows); }

  std::int64_t index(std::int64_t step, std::int64_t row) const {
    return step * (rows_.end - rows_.begin) + row - rows_.begin;
  }

  // Each element is written, and kept if it is not zero: without a branch, which is hard to guess.
  std::int32_t list(std::int64_t step, std::int64_t row, bool with_zeros, Term* to) const {
    const std::int64_t first = step * kDepth, count = least(kDepth, gemm_.inner - first);
    const float* const from =
        gemm_.left.data + row * gemm_.left.row_stride + first * gemm_.left.column_stride;
    std::int32_t kept = 0;
    for (std::int64_t depth = 0; depth < count; ++depth) {
      const float factor = from[depth * gemm_.left.column_stride];
      to[kept] = {factor, static_cast<std::int32_t>(depth * kColumns)};
      kept += with_zeros || factor != 0 ? 1 : 0;
    }
    return kept;
  }

  const Gemm& gemm_;
  Range rows_;
  std::int32_t* counts_;
  Term* terms_;
};

template <bool kWhole>
inline Floats load_some(const float* from, std::int64_t room) {
  if (kWhole) return load(from);
  return room > 0 ? load(from, room) : Floats{};
}

// Returns whether all of the panel is finite: an infinity or NaN times zero is NaN, and so is then
// the sum of those products.
template <bool kWhole>
inline bool copy_panel(
    const Gemm& gemm, std::int64_t first, std::int64_t column, float* __restrict panel) {
  const std::int64_t count = least(kDepth, gemm.inner - first), room = gemm.columns - column;
  Floats times_zero[kSums] = {};
  for (std::int64_t depth = 0; depth < count; ++depth) {
    const float* const from = gemm.right.data + (first + depth) * gemm.right.row_stride + column;
#pragma GCC unroll 8
    for (int i = 0; i < kSums; ++i) {
      const Floats numbers = load_some<kWhole>(from + i * kLanes, room - i * kLanes);
      times_zero[i] += numbers * all(0);
      store(panel + depth * kColumns + i * kLanes, numbers);
    }
  }
  Floats total = {};
  for (const Floats& some : times_zero) total += some;
  return simd::sum(total) == 0;
}

/// The rows that copy_panel() is to read next, fetched in parts, one for each row that is
/// multiplied.
class Ahead {
 public:
  Ahead(const Gemm& gemm, std::int64_t first, std::int64_t column, std::int64_t rows)
      : from_(gemm.right.data + first * gemm.right.row_stride + column),
        stride_(gemm.right.row_stride),
        lines_(column < gemm.columns ? least(kDepth, gemm.inner - first) * kLinesOfRow : 0),
        part_(parts_of(lines_, rows)) {}

  void fetch() {
    for (const std::int64_t end = least(line_ + part_, lines_); line_ < end; ++line_)
      __builtin_prefetch(
          from_ + line_ / kLinesOfRow * stride_ + line_ % kLinesOfRow * kLineFloats, 0, 2);
  }

 private:
  static constexpr std::int64_t kLinesOfRow = kColumns / kLineFloats;

  const float* from_;
  std::int64_t stride_, lines_, part_, line_ = 0;
};

// Asks for the memory of the row behind this one, which a processor does not expect so far away.
// Not inlined: the caller's variables would take registers from the sums.
template <bool kWhole>
[[gnu::noinline]] void add_terms(const Term* terms, std::int64_t count, const float* panel,
    bool is_first, std::int64_t room, float* products, std::int64_t stride) {
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kColumns; i += kLineFloats)
    __builtin_prefetch(products + stride + i, 1);
  Floats sums[kSums];
#pragma GCC unroll 8
  for (int i = 0; i < kSums; ++i)
    sums[i] = is_first ? Floats{} : load_some<kWhole>(products + i * kLanes, room - i * kLanes);
  for (const Term *term = terms, *end = terms + count; term != end; ++term) {
    const Floats factor = all(term->factor);
    const float* const row = panel + term->place;
#pragma GCC unroll 8
    for (int i = 0; i < kSums; ++i) sums[i] += factor * load(row + i * kLanes);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kSums; ++i) {
    if (kWhole)
      store(products + i * kLanes, sums[i]);
    else if (i * kLanes < room)
      store(products + i * kLanes, sums[i], room - i * kLanes);
  }
}

template <bool kWhole>
inline void multiply_panel(
    const Gemm& gemm, const TermLists& lists, Range rows, std::int64_t column, float* panel) {
  for (std::int64_t step = 0; step < TermLists::steps(gemm); ++step) {
    const bool is_finite = copy_panel<kWhole>(gemm, step * kDepth, column, panel);
    const bool is_last = step + 1 == TermLists::steps(gemm);
    Ahead ahead(gemm, is_last ? 0 : (step + 1) * kDepth, is_last ? column + kColumns : column,
        rows.end - rows.begin);
    Term all_terms[kDepth];
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      ahead.fetch();
      add_terms<kWhole>(is_finite ? lists.terms(step, row) : all_terms,
          is_finite ? lists.count(step, row) : lists.list_all(step, row, all_terms), panel,
          step == 0, gemm.columns - column, gemm.products + row * gemm.product_stride + column,
          gemm.product_stride);
    }
  }
}

inline void multiply_panels(const Gemm& gemm, Range rows, Range panels, float* scratch) {
  const TermLists lists(gemm, rows, scratch + kPanelFloats);
  for (std::int64_t i = panels.begin; i < panels.end; ++i) {
    const std::int64_t column = i * kColumns;
    column + kColumns <= gemm.columns ? multiply_panel<true>(gemm, lists, rows, column, scratch)
                                      : multiply_panel<false>(gemm, lists, rows, column, scratch);
  }
}

inline std::int64_t tasks_of(const Gemm& gemm) {
  return parts_of(gemm.rows, kMostRows) * panels_of(gemm);
}

inline std::int64_t scratch_of(const Gemm& gemm) { return kPanelFloats + TermLists::floats(gemm); }

// Tasks are panels, of one part of the rows after the other.
inline void multiply_tasks(const Gemm& gemm, Range tasks, float* scratch) {
  const std::int64_t panels = panels_of(gemm);
  for (std::int64_t task = tasks.begin; task < tasks.end;) {
    const std::int64_t part = task / panels, end = least(tasks.end, (part + 1) * panels);
    multiply_panels(gemm, {part * kMostRows, least((part + 1) * kMostRows, gemm.rows)},
        {task - part * panels, end - part * panels}, scratch);
    task = end;
  }
}

}  // namespace

const GemmKernel& LOCKSTEP_BUILD(skipping_gemm)() {
  static constexpr GemmKernel kKernel{.name = LOCKSTEP_BUILD_NAME,
      .tasks = tasks_of,
      .scratch_floats = scratch_of,
      .multiply = multiply_tasks,
      .skipping_zeros = nullptr};
  return kKernel;
}

}  // namespace lockstep::nn::linear
