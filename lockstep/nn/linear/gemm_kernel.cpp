#include "lockstep/nn/linear/gemm_kernel.h"

#include "lockstep/nn/linear/strip_sums.h"

// Note [Matrix products]
//
// The right matrix is cut into panels, two vectors wide and at most kMostInner deep. A panel is
// copied to contiguous memory and stays in the second-level cache, while strips of the left matrix
// are multiplied by it in turn. A strip has as many rows as the registers can hold sums of. Its
// elements are broadcast one by one, so either order of the left matrix will do. Strips are copied
// where the elements for one step would lie far apart: of columns, and of rows whose distance maps
// all of them to the same few sets of the first-level cache.
//
// What comes next is fetched meanwhile, for it does not lie in an order in which a processor
// fetches by itself: of rows the next strip, of columns some of the next ones, and what the next
// panel is copied from. A product of few columns and many rows, as a 1x1 convolution's, takes up to
// a third less time (Zen 3).
//
// A task computes the columns of one panel, over the whole depth, for a part of the rows. Sums are
// always added up in the order of the depth, so they do not depend on the tasks.
//
// Where many products of few rows have the same right matrix, copying it would take a quarter of
// the time. They share one copy of all panels.

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

constexpr std::int64_t kMostInner = 512, kMostRows = 1024;
static_assert(kMostSkippingDepth <= kMostInner);  // else the order of sums would be another one
constexpr int kStrip = kMostStripRows < kLanes ? kMostStripRows : kLanes;  // copied at once
constexpr std::int64_t kPanelFloats = kMostInner * kPanel;
constexpr std::int64_t kColumnsAhead = 24;

// Parts differ by one at most.
inline Range part_of(std::int64_t count, std::int64_t parts, std::int64_t part) {
  return {count * part / parts, count * (part + 1) / parts};
}

inline const float* at(const MatrixView& matrix, std::int64_t row, std::int64_t column) {
  return matrix.data + row * matrix.row_stride + column * matrix.column_stride;
}

inline void copy_row(const float* from, std::int64_t room, float* to) {
  if (room >= kPanel) {
    store(to, load(from));
    store(to + kLanes, load(from + kLanes));
    return;
  }
  for (std::int64_t i = 0; i < kPanel; ++i) to[i] = i < room ? from[i] : 0;
}

// Copies a panel whose columns are contiguous, as [inner][kPanel].
inline void transpose_panel(
    const float* from, std::int64_t stride, std::int64_t inner, std::int64_t room, float* to) {
  for (std::int64_t first = 0; first < kPanel; first += kLanes) {
    std::int64_t i = 0;
    for (; room >= first + kLanes && i + kLanes <= inner; i += kLanes) {
      Floats columns[kLanes];
      for (int lane = 0; lane < kLanes; ++lane)
        columns[lane] = load(from + (first + lane) * stride + i);
      simd::transpose(columns);
      for (int row = 0; row < kLanes; ++row) store(to + (i + row) * kPanel + first, columns[row]);
    }
    for (; i < inner; ++i) {
      for (std::int64_t lane = first; lane < first + kLanes; ++lane)
        to[i * kPanel + lane] = lane < room ? from[lane * stride + i] : 0;
    }
  }
}

inline void copy_panel(const Gemm& gemm, Range depths, std::int64_t column, float* to) {
  const float* const from = at(gemm.right, depths.begin, column);
  const std::int64_t inner = depths.end - depths.begin, room = gemm.columns - column;
  if (gemm.right.column_stride != 1)
    return transpose_panel(from, gemm.right.column_stride, inner, room, to);
  for (std::int64_t i = 0; i < inner; ++i)
    copy_row(from + i * gemm.right.row_stride, room, to + i * kPanel);
}

// Rows that are a multiple of a page apart share the same sets of the cache, which hold 8 of them
// or 12; of half a page, which matters for high strips, twice as many sets. Of a column a strip has
// a few elements, and the next column is far away; for a few panels, as each of many threads has, a
// copy takes longer than it saves.
inline bool must_copy(const Gemm& gemm, std::int64_t panels) {
  constexpr std::int64_t kPage = 1024, kFewPanels = 2;
  constexpr std::int64_t kAlike = kStrip > 8 ? kPage / 2 : kPage;
  const MatrixView& left = gemm.left;
  return left.column_stride == 1 ? left.row_stride % kAlike == 0 : panels > kFewPanels;
}

inline std::int64_t panels_of(const Gemm& gemm) { return parts_of(gemm.columns, kPanel); }

// Strips are stored by whole vectors, so the last one may write up to a vector beyond its end.
inline std::int64_t scratch_of(const Gemm& gemm) {
  const std::int64_t strips = least(gemm.inner, kMostInner) * least(gemm.rows, kMostRows);
  return kPanelFloats + (must_copy(gemm, panels_of(gemm)) ? strips + kLanes : 0);
}

// Copies rows of the left matrix as [inner][rows]. The lanes of a vector that are no rows are
// overwritten by the next one.
inline void copy_strip(const Gemm& gemm, Range rows, Range depths, float* to) {
  const std::int64_t count = rows.end - rows.begin, inner = depths.end - depths.begin;
  const float* const from = at(gemm.left, rows.begin, depths.begin);
  if (gemm.left.column_stride != 1) {
    const std::int64_t room = gemm.rows - rows.begin, next = gemm.left.column_stride;
    for (std::int64_t i = 0; i < inner; ++i) {
      __builtin_prefetch(from + i * next + kLineFloats);
      store(to + i * count, room >= kLanes ? load(from + i * next) : load(from + i * next, room));
    }
    return;
  }
  std::int64_t i = 0;
  for (; i + kLanes <= inner; i += kLanes) {
    Floats lines[kLanes];
    for (int row = 0; row < kLanes; ++row)
      lines[row] = load(from + (row < count ? row : 0) * gemm.left.row_stride + i);
    simd::transpose(lines);
    for (int depth = 0; depth < kLanes; ++depth) store(to + (i + depth) * count, lines[depth]);
  }
  for (; i < inner; ++i)
    for (std::int64_t row = 0; row < count; ++row)
      to[i * count + row] = from[row * gemm.left.row_stride + i];
}

/// Where the sums of a strip are stored, and what is added to them.
struct StripTarget {
  float* products;
  std::int64_t stride, room;
  const float* bias;  ///< or none
  bool adds;          ///< to what is there
};

inline void finish_vector(Floats sum, float* to, std::int64_t room, const float* bias, bool adds) {
  if (adds) sum += load(to, room);
  if (bias != nullptr) sum += load(bias, room);
  store(to, sum, room);
}

// The compiler keeps the sums in registers only if this is inlined and unrolled, with a branch of
// its own for whole vectors.
template <int kRows>
[[gnu::always_inline]] inline void finish_strip(
    const StripSums<kRows>& sums, const StripTarget& target) {
  const float* const bias = target.bias;
  const float* const more_bias = bias == nullptr ? nullptr : bias + kLanes;
  if (target.room >= kPanel) {
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      float* const to = target.products + row * target.stride;
      finish_vector(sums.first[row], to, kLanes, bias, target.adds);
      finish_vector(sums.second[row], to + kLanes, kLanes, more_bias, target.adds);
    }
    return;
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    float* const to = target.products + row * target.stride;
    finish_vector(sums.first[row], to, target.room, bias, target.adds);
    if (target.room > kLanes)
      finish_vector(sums.second[row], to + kLanes, target.room - kLanes, more_bias, target.adds);
  }
}

/// Lines of the right matrix that are fetched while a strip is multiplied, one for kSteps of the
/// depth.
struct Ahead {
  static constexpr int kSteps = 2;
  const float* next = nullptr;
  std::int64_t stride = 0;  ///< 0: nothing is fetched

  // Once for kDepths.
  void fetch() {
    if (stride == 0) return;
    for (int i = 0; i < kDepths / kSteps; ++i, next += stride) __builtin_prefetch(next);
  }
};

// Of rows the next strip, of columns that are apart the next ones.
template <int kRows, bool kAlongDepth>
[[gnu::always_inline]] inline void fetch_strip(
    const StripElements<kRows, kAlongDepth>& elements, std::int64_t depth) {
  if constexpr (kAlongDepth) {
    if (depth % kLineFloats != 0) return;
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) __builtin_prefetch(elements.of_row(kRows + row));
  } else if (elements.stride() > kLineFloats) {
#pragma GCC unroll 4
    for (int i = 0; i < kDepths; ++i)
      __builtin_prefetch(elements.of_row(0) + (kColumnsAhead + i) * elements.stride());
  }
}

// Not inlined: the caller's variables would take registers from the sums.
template <int kRows, bool kAlongDepth>
[[gnu::noinline]] void multiply_strip(const float* left, std::int64_t stride, const float* panel,
    std::int64_t inner, const StripTarget& target, Ahead ahead) {
  StripSums<kRows> sums;
  sums.add(StripElements<kRows, kAlongDepth>(left, stride), panel, inner,
      [&](const auto& elements, std::int64_t depth) {
        ahead.fetch();
        fetch_strip(elements, depth);
      });
  finish_strip(sums, target);
}

template <int kRows = kStrip, typename Body>
inline void with_rows(std::int64_t rows, const Body& body) {
  if (rows == kRows) return body.template operator()<kRows>();
  if constexpr (kRows > 1) with_rows<kRows - 1>(rows, body);
}

/// The products of some rows, over a part of the depth.
struct Block {
  const Gemm& gemm;
  Range rows, depths;
  const float* copied;  ///< the rows as copy_to() wrote them, or none

  template <typename Body>
  void each_strip(const Body& body) const {
    const std::int64_t count = rows.end - rows.begin, strips = parts_of(count, kStrip);
    for (std::int64_t i = 0; i < strips; ++i) {
      const Range part = part_of(count, strips, i);
      body(Range{rows.begin + part.begin, rows.begin + part.end});
    }
  }

  void copy_to(float* to) const {
    each_strip([&](Range strip) { copy_strip(gemm, strip, depths, place_in(to, strip)); });
  }

  void multiply(const float* panel, std::int64_t column) const {
    std::int64_t before = 0;
    each_strip([&](Range strip) { multiply(strip, panel, column, ahead(before++, column)); });
  }

 private:
  template <typename T>
  T* place_in(T* strips, Range strip) const {
    return strips + (strip.begin - rows.begin) * (depths.end - depths.begin);
  }

  // Of the next panel, while a strip is multiplied that has some before it: its rows one after the
  // other, or where its columns are contiguous one of them.
  Ahead ahead(std::int64_t strips, std::int64_t column) const {
    const MatrixView& right = gemm.right;
    const bool is_in_rows = right.column_stride == 1;
    const std::int64_t next = column + kPanel + (is_in_rows ? 0 : strips);
    const bool is_done = strips >= (is_in_rows ? Ahead::kSteps : kPanel);
    if (is_done || next >= gemm.columns || right.row_stride == 0) return {};
    if (!is_in_rows) return {at(right, depths.begin, next), Ahead::kSteps};
    const std::int64_t part = (depths.end - depths.begin) / Ahead::kSteps;
    return {at(right, depths.begin + strips * part, next), right.row_stride};
  }

  void multiply(Range strip, const float* panel, std::int64_t column, const Ahead& ahead) const {
    const std::int64_t inner = depths.end - depths.begin, count = strip.end - strip.begin;
    const bool is_first = depths.begin == 0;
    const StripTarget target{.products = gemm.products + strip.begin * gemm.product_stride + column,
        .stride = gemm.product_stride,
        .room = gemm.columns - column,
        .bias = is_first && gemm.bias != nullptr ? gemm.bias + column : nullptr,
        .adds = !is_first || gemm.adds};
    with_rows(count, [&]<int kRows>() {
      if (copied != nullptr)
        return multiply_strip<kRows, false>(
            place_in(copied, strip), count, panel, inner, target, ahead);
      const float* const left = at(gemm.left, strip.begin, depths.begin);
      gemm.left.column_stride == 1
          ? multiply_strip<kRows, true>(left, gemm.left.row_stride, panel, inner, target, ahead)
          : multiply_strip<kRows, false>(
                left, gemm.left.column_stride, panel, inner, target, ahead);
    });
  }
};

inline std::int64_t gemm_tasks(const Gemm& gemm) {
  return parts_of(gemm.rows, kMostRows) * panels_of(gemm);
}

// Calls body with each part of the depth, in order.
template <typename Body>
inline void each_depth(const Gemm& gemm, const Body& body) {
  const std::int64_t steps = parts_of(gemm.inner, kMostInner);
  for (std::int64_t step = 0; step < steps; ++step) body(part_of(gemm.inner, steps, step));
}

inline void multiply_panels(const Gemm& gemm, Range rows, Range panels, float* scratch) {
  float *const panel = scratch, *const strips = scratch + kPanelFloats;
  const bool copies = must_copy(gemm, panels.end - panels.begin);
  each_depth(gemm, [&](Range depths) {
    const Block block{gemm, rows, depths, copies ? strips : nullptr};
    if (copies) block.copy_to(strips);
    for (std::int64_t column = panels.begin; column < panels.end; ++column) {
      copy_panel(gemm, depths, column * kPanel, panel);
      block.multiply(panel, column * kPanel);
    }
  });
}

inline void multiply_tasks(const Gemm& gemm, Range tasks, float* scratch) {
  const std::int64_t panels = panels_of(gemm), parts = parts_of(gemm.rows, kMostRows);
  for (std::int64_t task = tasks.begin; task < tasks.end;) {
    const std::int64_t part = task / panels, end = least(tasks.end, (part + 1) * panels);
    multiply_panels(gemm, part_of(gemm.rows, parts, part),
        {task - part * panels, end - part * panels}, scratch);
    task = end;
  }
}

// Behind all panels of the depths before.
template <typename T>
inline T* packed_panel(const Gemm& gemm, Range depths, std::int64_t panel, T* packed) {
  const std::int64_t depth = depths.end - depths.begin;
  return packed + (depths.begin * panels_of(gemm) + depth * panel) * kPanel;
}

inline std::int64_t packed_floats_of(const Gemm& gemm) {
  return panels_of(gemm) * gemm.inner * kPanel;
}

inline void pack_panels(const Gemm& gemm, Range panels, float* packed) {
  each_depth(gemm, [&](Range depths) {
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel)
      copy_panel(gemm, depths, panel * kPanel, packed_panel(gemm, depths, panel, packed));
  });
}

inline void multiply_by_packed(const Gemm& shared, const float* packed) {
  Gemm gemm = shared;
  gemm.right = {packed, 0, 0};  // it is not read, and none of it is fetched ahead
  each_depth(gemm, [&](Range depths) {
    const Block block{gemm, {0, gemm.rows}, depths, nullptr};
    for (std::int64_t panel = 0; panel < panels_of(gemm); ++panel)
      block.multiply(packed_panel(gemm, depths, panel, packed), panel * kPanel);
  });
}

}  // namespace

const GemmKernel& LOCKSTEP_BUILD(gemm)() {
  static constexpr GemmKernel kKernel{.name = LOCKSTEP_BUILD_NAME,
      .tasks = gemm_tasks,
      .scratch_floats = scratch_of,
      .multiply = multiply_tasks,
      .panels = panels_of,
      .packed_floats = packed_floats_of,
      .pack = pack_panels,
      .multiply_packed = multiply_by_packed,
      .skipping_zeros = LOCKSTEP_BUILD(skipping_gemm)};
  return kKernel;
}

}  // namespace lockstep::nn::linear
