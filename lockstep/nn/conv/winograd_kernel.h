#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include <cstdint>

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::conv {

/// The tiles of output pixels of a 3x3 convolution of stride 1.
struct TileGrid {
  std::int64_t images;
  std::int64_t height, width;          ///< of the input
  std::int64_t out_height, out_width;  ///< of the output: height + 2 * padding - 2
  std::int64_t padding;
  std::int64_t rows, columns;  ///< of tiles in an image
};

/// Images in NHWC order.
struct Pixels {
  void* data;
  std::int64_t channels;
  Element element;
};

/// The weights of a convolution, by strides in floats: one layout and its rotation look the same.
struct Weights {
  float* data;
  std::int64_t outputs, inputs;
  std::int64_t output_stride, input_stride, row_stride, column_stride;
};

/// One plane for each place of a transformed tile, and in each plane a row per tile, a column per
/// channel.
struct TilePlanes {
  float* data;
  std::int64_t plane_stride, row_stride;
};

/// One plane for each place of a transformed tile. In each plane the channels are cut into panels
/// of `panel` (see WinogradKernel); a panel is [rows][panel].
struct PanelPlanes {
  float* data;
  std::int64_t plane_stride;
  std::int64_t rows;
};

/// Some successive tiles. Ranges of tiles count from `first`.
struct TileBlock {
  TileGrid grid;
  std::int64_t first;
  const void* zeros;  ///< a pixel of nothing but zeros: stands for pixels outside
};

/// Matrix products, one for each plane and panel; ranges of products count panels first:
/// product = plane * panels + panel.
struct Products {
  TilePlanes tiles;
  PanelPlanes weights, results;
  std::int64_t tile_count, inputs, panels;
  bool adds;  ///< to the sums that are there, where it accumulates
};

/// The steps of Note [Winograd], for one size of tile and one instruction set. Each may be
/// called for parts of its range at once; what an element is does not depend on the parts.
struct WinogradKernel {
  const char* name;
  std::int64_t tile;    ///< output pixels of a tile in each direction: 2 or 4
  std::int64_t planes;  ///< (tile + 2)^2
  std::int64_t panel;   ///< channels that are multiplied together
  void (*transform_weights)(const Weights& weights, Range panels, const PanelPlanes& to);
  void (*transform_input)(
      const TileBlock& block, const Pixels& from, Range tiles, const TilePlanes& to);
  void (*multiply)(const Products& job, Range products);  ///< results = tiles x weights
  void (*transform_output)(const TileBlock& block, const PanelPlanes& from, const float* bias,
      Range tiles, const Pixels& to);
  void (*transform_gradient)(
      const TileBlock& block, const Pixels& from, Range tiles, const PanelPlanes& to);
  void (*accumulate)(const Products& job, Range products);  ///< weights (+)= tiles' x results
  void (*finish_weights)(const PanelPlanes& from, Range panels, const Weights& to);
};

/// Both sizes of tile for one instruction set.
struct WinogradBuild {
  const char* name;
  WinogradKernel small, large;  ///< tiles of 2x2 and of 4x4
};

const WinogradBuild& winograd_plain();
const WinogradBuild& winograd_avx2();
const WinogradBuild& winograd_avx512();

}  // namespace lockstep::nn::conv
