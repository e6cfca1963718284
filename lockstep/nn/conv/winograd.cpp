#include "lockstep/nn/conv/winograd.h"

#include <algorithm>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::conv {
namespace {

std::int64_t divided_up(std::int64_t number, std::int64_t by) { return (number + by - 1) / by; }

// Of the second cache, which has 512 KB to 2 MB, what the tiles of a block may take.
constexpr std::int64_t kOwnFloats = 200'000;
// Of the third cache, what the tiles may take that all threads sum together.
constexpr std::int64_t kSharedFloats = 10'000'000;
// Weights beyond this are read from memory for each block of tiles.
constexpr std::int64_t kCachedWeights = 2'000'000;
// Sums of the weights' gradient beyond this are not multiplied by the number of parts.
constexpr std::int64_t kMostSumsOfAPart = 700'000;
constexpr std::int64_t kParts = 8;

// Cuts a convolution's output into tiles.
TileGrid tile_grid(const WinogradKernel& kernel, std::int64_t images, std::int64_t height,
    std::int64_t width, std::int64_t padding) {
  const std::int64_t out_height = height + 2 * padding - 2, out_width = width + 2 * padding - 2;
  return {.images = images,
      .height = height,
      .width = width,
      .out_height = out_height,
      .out_width = out_width,
      .padding = padding,
      .rows = divided_up(out_height, kernel.tile),
      .columns = divided_up(out_width, kernel.tile)};
}

std::int64_t tiles_of(const TileGrid& grid) { return grid.images * grid.rows * grid.columns; }

std::int64_t panels_of(const WinogradKernel& kernel, std::int64_t channels) {
  return divided_up(channels, kernel.panel);
}

// Rounds up to an odd number of cache lines: planes that are whole pages apart would all fall into
// the same few sets of a cache.
std::int64_t spread(std::int64_t floats) {
  constexpr std::int64_t kLine = 16;
  return (divided_up(floats, kLine) | 1) * kLine;
}

// How many tiles are transformed, multiplied and transformed back before the next, in the forward
// pass or for the input's gradient: so few that they stay in the second cache, but enough to pay
// for reading the weights, which do not. No result depends on it.
std::int64_t tiles_at_once(const WinogradKernel& kernel, std::int64_t tiles, std::int64_t inputs,
    std::int64_t outputs, int threads) {
  const std::int64_t weights = kernel.planes * inputs * outputs;
  const std::int64_t fewest = weights > kCachedWeights ? 224 : 56;
  const std::int64_t fit = kOwnFloats / (kernel.planes * (inputs + outputs));
  // As many blocks on each thread.
  const std::int64_t blocks =
      divided_up(divided_up(tiles, std::max(fit, fewest)), threads) * threads;
  return divided_up(tiles, blocks);
}

// Memory for planes, not initialised.
template <typename Planes>
struct Stored {
  at::Tensor memory;
  Planes planes;
};

Stored<TilePlanes> tile_planes(
    const WinogradKernel& kernel, std::int64_t tiles, std::int64_t channels) {
  // A vector that begins in the last channels is stored as a whole.
  const std::int64_t row = spread(panels_of(kernel, channels) * kernel.panel);
  const std::int64_t plane = spread(tiles * row);
  auto memory = at::empty({kernel.planes * plane}, at::kFloat);
  return {memory, {memory.mutable_data_ptr<float>(), plane, row}};
}

// Rows are tiles or inputs. Of several parts the planes of each follow those of the one before.
Stored<PanelPlanes> panel_planes(const WinogradKernel& kernel, std::int64_t rows,
    std::int64_t channels, std::int64_t parts = 1) {
  const std::int64_t plane = spread(panels_of(kernel, channels) * rows * kernel.panel);
  auto memory = at::empty({parts * kernel.planes * plane}, at::kFloat);
  return {memory, {memory.mutable_data_ptr<float>(), plane, rows}};
}

PanelPlanes part_of(const WinogradKernel& kernel, const PanelPlanes& planes, std::int64_t part) {
  return {
      planes.data + part * kernel.planes * planes.plane_stride, planes.plane_stride, planes.rows};
}

// Adds some panels of all planes.
void add_panels(
    const WinogradKernel& kernel, const PanelPlanes& from, Range panels, const PanelPlanes& to) {
  const std::int64_t panel = from.rows * kernel.panel;
  for (std::int64_t plane = 0; plane < kernel.planes; ++plane) {
    const float* const source = from.data + plane * from.plane_stride;
    float* const sums = to.data + plane * to.plane_stride;
    for (std::int64_t place = panels.begin * panel; place < panels.end * panel; ++place)
      sums[place] += source[place];
  }
}

at::Tensor channels_last(const at::Tensor& images) {
  return images.contiguous(at::MemoryFormat::ChannelsLast);
}

// What kernels see of tensors, images in fp32 or bf16 and weights in fp32; of const ones they only
// read.
Pixels pixels_of(const at::Tensor& images) {
  const bool is_float = images.scalar_type() == at::kFloat;
  return {const_cast<void*>(images.const_data_ptr()), images.size(1),
      is_float ? Element::kFloat : Element::kBFloat16};
}

Weights weights_of(const at::Tensor& weight) {
  return {const_cast<float*>(weight.const_data_ptr<float>()), weight.size(0), weight.size(1),
      weight.stride(0), weight.stride(1), weight.stride(2), weight.stride(3)};
}

// The weights by which the input's gradient is a convolution of the output's: turned by half a
// turn, inputs and outputs exchanged.
Weights rotated(const Weights& from) {
  Weights to = from;
  to.data += 2 * (from.row_stride + from.column_stride);
  std::swap(to.outputs, to.inputs);
  std::swap(to.output_stride, to.input_stride);
  to.row_stride = -from.row_stride;
  to.column_stride = -from.column_stride;
  return to;
}

/// One convolution: the forward pass, or the input's gradient. Each thread computes blocks of tiles
/// from the pixels to the result.
struct ForwardPass {
  const WinogradKernel& kernel;
  TileGrid grid;
  Pixels from, to;
  Weights weights;
  const float* bias;  ///< or none
  const void* zeros;  ///< as many as inputs

  void run() const {
    const auto transformed = panel_planes(kernel, from.channels, to.channels);
    in_parallel(panels_of(kernel, to.channels),
        [&](Range panels) { kernel.transform_weights(weights, panels, transformed.planes); });
    const std::int64_t tiles = tiles_of(grid);
    const std::int64_t size =
        tiles_at_once(kernel, tiles, from.channels, to.channels, at::get_num_threads());
    in_parallel(divided_up(tiles, size),
        [&](Range blocks) { compute_blocks(blocks, size, transformed.planes); });
  }

 private:
  void compute_blocks(
      Range blocks, std::int64_t size, const PanelPlanes& transformed_weights) const {
    const auto tiles = tile_planes(kernel, size, from.channels);
    const auto results = panel_planes(kernel, size, to.channels);
    const std::int64_t panels = panels_of(kernel, to.channels);
    for (std::int64_t index = blocks.begin; index < blocks.end; ++index) {
      const TileBlock block{grid, index * size, zeros};
      const std::int64_t count = std::min(size, tiles_of(grid) - block.first);
      kernel.transform_input(block, from, {0, count}, tiles.planes);
      const Products products{.tiles = tiles.planes,
          .weights = transformed_weights,
          .results = results.planes,
          .tile_count = count,
          .inputs = from.channels,
          .panels = panels,
          .adds = false};
      kernel.multiply(products, {0, kernel.planes * panels});
      kernel.transform_output(block, results.planes, bias, {0, count}, to);
    }
  }
};

/// The gradient of the weights.
///
/// Note [Sums of the weights' gradient]
/// Products are summed over all tiles. Where the sums are small, tiles are cut into parts, each
/// summed by one thread, and the parts are added in order. Where they are too large for that, all
/// threads work on the same tiles: they transform a block of them, wait for each other, and sum
/// some planes each. Either way the order of a sum depends on the shape alone.
struct WeightGradientPass {
  const WinogradKernel& kernel;
  TileGrid grid;
  Pixels images, gradient;
  Weights weights;    ///< that are written
  const void* zeros;  ///< as many as inputs, and as outputs

  void run() const {
    const auto plan =
        plan_weight_gradient(kernel, tiles_of(grid), images.channels, gradient.channels);
    plan.parts > 1 ? run_in_parts(plan) : run_together(plan);
  }

 private:
  // Some tiles, transformed.
  struct Block {
    const WeightGradientPass& pass;
    std::int64_t size;
    Stored<TilePlanes> tiles;
    Stored<PanelPlanes> factors;

    Block(const WeightGradientPass& of, std::int64_t most)
        : pass(of),
          size(most),
          tiles(tile_planes(of.kernel, most, of.images.channels)),
          factors(panel_planes(of.kernel, most, of.gradient.channels)) {}

    // A range within the block that begins with tile `first`.
    void transform(std::int64_t first, Range some) const {
      const TileBlock block{pass.grid, first, pass.zeros};
      pass.kernel.transform_input(block, pass.images, some, tiles.planes);
      pass.kernel.transform_gradient(block, pass.gradient, some, factors.planes);
    }

    Products products(std::int64_t count, const PanelPlanes& sums, bool adds) const {
      return {.tiles = tiles.planes,
          .weights = sums,
          .results = factors.planes,
          .tile_count = count,
          .inputs = pass.images.channels,
          .panels = panels_of(pass.kernel, pass.gradient.channels),
          .adds = adds};
    }
  };

  void run_in_parts(const WeightGradientPlan& plan) const {
    // The planes of all parts, one part after the other.
    const std::int64_t all = tiles_of(grid);
    const auto sums = panel_planes(kernel, images.channels, gradient.channels, plan.parts);
    in_parallel(plan.parts, [&](Range parts) {
      const Block block(*this, plan.tiles);
      for (std::int64_t part = parts.begin; part < parts.end; ++part)
        sum_part({all * part / plan.parts, all * (part + 1) / plan.parts}, block,
            part_of(kernel, sums.planes, part));
    });
    finish(sums.planes, plan.parts);
  }

  void run_together(const WeightGradientPlan& plan) const {
    const auto sums = panel_planes(kernel, images.channels, gradient.channels);
    const Block block(*this, plan.tiles);
    for (std::int64_t first = 0; first < tiles_of(grid); first += plan.tiles) {
      const std::int64_t count = std::min(plan.tiles, tiles_of(grid) - first);
      in_parallel(count, [&](Range tiles) { block.transform(first, tiles); });
      const Products products = block.products(count, sums.planes, first > 0);
      in_parallel(
          kernel.planes * products.panels, [&](Range some) { kernel.accumulate(products, some); });
    }
    finish(sums.planes, 1);
  }

  void sum_part(Range tiles, const Block& block, const PanelPlanes& sums) const {
    for (std::int64_t first = tiles.begin; first < tiles.end; first += block.size) {
      const std::int64_t count = std::min(block.size, tiles.end - first);
      block.transform(first, {0, count});
      const Products products = block.products(count, sums, first > tiles.begin);
      kernel.accumulate(products, {0, kernel.planes * products.panels});
    }
  }

  void finish(const PanelPlanes& sums, std::int64_t parts) const {
    in_parallel(panels_of(kernel, gradient.channels), [&](Range panels) {
      for (std::int64_t part = 1; part < parts; ++part)
        add_panels(kernel, part_of(kernel, sums, part), panels, sums);
      kernel.finish_weights(sums, panels, weights);
    });
  }
};

at::Tensor convolve(const WinogradKernel& kernel, const at::Tensor& given, const Weights& weights,
    const at::Tensor& bias, std::int64_t padding) {
  const auto images = channels_last(given);
  const auto grid = tile_grid(kernel, images.size(0), images.size(2), images.size(3), padding);
  auto result = at::empty({images.size(0), weights.outputs, grid.out_height, grid.out_width},
      images.options().memory_format(at::MemoryFormat::ChannelsLast));
  const auto zeros = at::zeros({images.size(1)}, at::kFloat);
  ForwardPass{.kernel = kernel,
      .grid = grid,
      .from = pixels_of(images),
      .to = pixels_of(result),
      .weights = weights,
      .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
      .zeros = zeros.const_data_ptr()}
      .run();
  return result;
}

}  // namespace

std::span<const WinogradBuild* const> winograd_builds() {
  static const WinogradBuild* const kBuilds[] = {
      &winograd_plain(), &winograd_avx2(), &winograd_avx512()};
  return simd::usable(kBuilds);
}

WeightGradientPlan plan_weight_gradient(
    const WinogradKernel& kernel, std::int64_t tiles, std::int64_t inputs, std::int64_t outputs) {
  constexpr std::int64_t kFewest = 32;
  const std::int64_t a_tile = kernel.planes * (inputs + outputs);
  const std::int64_t sums = kernel.planes * inputs * outputs;
  if (sums <= kMostSumsOfAPart && tiles >= kParts * kFewest)
    return {.parts = kParts, .tiles = std::max(kFewest, kOwnFloats / a_tile)};
  return {
      .parts = 1, .tiles = std::min(tiles, std::max<std::int64_t>(256, kSharedFloats / a_tile))};
}

at::Tensor winograd_forward(const WinogradKernel& kernel, const at::Tensor& images,
    const at::Tensor& weight, const at::Tensor& bias, std::int64_t padding) {
  const auto floats = weight.to(at::kFloat);
  const auto addends = bias.defined() ? bias.to(at::kFloat).contiguous() : bias;
  return convolve(kernel, images, weights_of(floats), addends, padding);
}

at::Tensor winograd_input_gradient(const WinogradKernel& kernel, const at::Tensor& gradient,
    const at::Tensor& weight, std::int64_t padding) {
  const auto floats = weight.to(at::kFloat);
  return convolve(kernel, gradient, rotated(weights_of(floats)), {}, 2 - padding);
}

at::Tensor winograd_weight_gradient(const WinogradKernel& kernel, const at::Tensor& images,
    const at::Tensor& gradient, const at::Tensor& weight, std::int64_t padding) {
  const auto pixels = channels_last(images), errors = channels_last(gradient);
  const auto zeros = at::zeros({std::max(images.size(1), gradient.size(1))}, at::kFloat);
  const bool is_float = weight.scalar_type() == at::kFloat;
  auto result = is_float ? empty_gradient(weight) : at::empty_like(weight, at::kFloat);
  WeightGradientPass{.kernel = kernel,
      .grid = tile_grid(kernel, images.size(0), images.size(2), images.size(3), padding),
      .images = pixels_of(pixels),
      .gradient = pixels_of(errors),
      .weights = weights_of(result),
      .zeros = zeros.const_data_ptr()}
      .run();
  return is_float ? result : result.to(weight.scalar_type());
}

}  // namespace lockstep::nn::conv
