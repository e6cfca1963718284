#pragma once

// The matrix products of Note [Winograd].
//
// A panel is two vectors wide. kRows rows of it are summed in registers, as many as leave room
// for the panel's two vectors and a factor.

#include "lockstep/nn/conv/winograd_kernel.h"
#include "lockstep/nn/fused/vectors.h"

namespace lockstep::nn::conv {
namespace {

using fused::all;
using fused::Floats;
using fused::kLanes;
using fused::load;

constexpr std::int64_t kPanel = 2 * kLanes;
constexpr int kMostRows = kLanes == 16 ? 14 : 6;

inline void store_all(float* to, Floats vector) { std::memcpy(to, &vector, sizeof(vector)); }

/// Calls body with the number of rows that it takes at once, as a type, until all are done.
template <int kRows, typename Body>
inline void rows_at_most(std::int64_t row, std::int64_t end, const Body& body) {
  for (; row + kRows <= end; row += kRows) body.template operator()<kRows>(row);
  if constexpr (kRows > 1) rows_at_most<kRows - 1>(row, end, body);
}

template <int kRows>
inline void add_rows(const float* from, Floats (&left)[kRows], Floats (&right)[kRows]) {
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    left[row] += load(from + row * kPanel);
    right[row] += load(from + row * kPanel + kLanes);
  }
}

template <int kRows>
inline void store_rows(float* to, const Floats (&left)[kRows], const Floats (&right)[kRows]) {
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    store_all(to + row * kPanel, left[row]);
    store_all(to + row * kPanel + kLanes, right[row]);
  }
}

// results[r][lane] = sum over i of tiles[r][i] * weights[i][lane]
template <int kRows>
inline void multiply_rows(const float* tiles, std::int64_t row_stride, const float* weights,
    std::int64_t inputs, float* results) {
  Floats left[kRows] = {}, right[kRows] = {};
  for (std::int64_t input = 0; input < inputs; ++input) {
    const Floats w0 = load(weights + input * kPanel), w1 = load(weights + input * kPanel + kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const Floats factor = all(tiles[row * row_stride + input]);
      left[row] += factor * w0;
      right[row] += factor * w1;
    }
  }
  store_rows<kRows>(results, left, right);
}

// sums[i][lane] = sum over tiles t of tiles[t][i] * gradients[t][lane], for kRows of i
template <int kRows>
inline void accumulate_rows(const float* tiles, std::int64_t row_stride, const float* gradients,
    std::int64_t count, float* sums, bool adds) {
  Floats left[kRows] = {}, right[kRows] = {};
  for (std::int64_t tile = 0; tile < count; ++tile) {
    const Floats e0 = load(gradients + tile * kPanel);
    const Floats e1 = load(gradients + tile * kPanel + kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const Floats factor = all(tiles[tile * row_stride + row]);
      left[row] += factor * e0;
      right[row] += factor * e1;
    }
  }
  if (adds) add_rows<kRows>(sums, left, right);
  store_rows<kRows>(sums, left, right);
}

inline float* panel_of(const PanelPlanes& planes, std::int64_t plane, std::int64_t panel) {
  return planes.data + plane * planes.plane_stride + panel * planes.rows * kPanel;
}

inline void multiply(const Products& job, Range products) {
  for (std::int64_t product = products.begin; product < products.end; ++product) {
    const std::int64_t plane = product / job.panels, panel = product % job.panels;
    const float* const tiles = job.tiles.data + plane * job.tiles.plane_stride;
    const float* const weights = panel_of(job.weights, plane, panel);
    float* const results = panel_of(job.results, plane, panel);
    rows_at_most<kMostRows>(0, job.tile_count, [&]<int kRows>(std::int64_t row) {
      multiply_rows<kRows>(tiles + row * job.tiles.row_stride, job.tiles.row_stride, weights,
          job.inputs, results + row * kPanel);
    });
  }
}

inline void accumulate(const Products& job, Range products) {
  for (std::int64_t product = products.begin; product < products.end; ++product) {
    const std::int64_t plane = product / job.panels, panel = product % job.panels;
    const float* const tiles = job.tiles.data + plane * job.tiles.plane_stride;
    const float* const gradients = panel_of(job.results, plane, panel);
    float* const sums = panel_of(job.weights, plane, panel);
    rows_at_most<kMostRows>(0, job.inputs, [&]<int kRows>(std::int64_t row) {
      accumulate_rows<kRows>(tiles + row, job.tiles.row_stride, gradients, job.tile_count,
          sums + row * kPanel, job.adds);
    });
  }
}

}  // namespace
}  // namespace lockstep::nn::conv
