#include "lockstep/nn/conv/winograd_pass.h"

#include <algorithm>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "lockstep/nn/conv/winograd_plan.h"
#include "lockstep/nn/in_parallel.h"

namespace lockstep::nn::conv {

Stored<TilePlanes> tile_planes(
    const WinogradKernel& kernel, std::int64_t tiles, std::int64_t channels) {
  // A vector that begins in the last channels is stored as a whole.
  const std::int64_t row = spread(panels_of(kernel, channels) * kernel.panel);
  const std::int64_t plane = spread(tiles * row);
  auto memory = at::empty({kernel.planes * plane}, at::kFloat);
  return {memory, {memory.mutable_data_ptr<float>(), plane, row}};
}

Stored<PanelPlanes> panel_planes(
    const WinogradKernel& kernel, std::int64_t rows, std::int64_t channels, std::int64_t parts) {
  const std::int64_t plane = spread(panels_of(kernel, channels) * rows * kernel.panel);
  auto memory = at::empty({parts * kernel.planes * plane}, at::kFloat);
  return {memory, {memory.mutable_data_ptr<float>(), plane, rows}};
}

PanelPlanes part_of(const WinogradKernel& kernel, const PanelPlanes& planes, std::int64_t part) {
  return {
      planes.data + part * kernel.planes * planes.plane_stride, planes.plane_stride, planes.rows};
}

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

Pixels pixels_of(const at::Tensor& images) {
  const bool is_float = images.scalar_type() == at::kFloat;
  return {const_cast<void*>(images.const_data_ptr()), images.size(1),
      is_float ? Element::kFloat : Element::kBFloat16};
}

Weights weights_of(const at::Tensor& weight) {
  return {const_cast<float*>(weight.const_data_ptr<float>()), weight.size(0), weight.size(1),
      weight.stride(0), weight.stride(1), weight.stride(2), weight.stride(3)};
}

Weights rotated(const Weights& from) {
  Weights to = from;
  to.data += 2 * (from.row_stride + from.column_stride);
  std::swap(to.outputs, to.inputs);
  std::swap(to.output_stride, to.input_stride);
  to.row_stride = -from.row_stride;
  to.column_stride = -from.column_stride;
  return to;
}

namespace {

template <typename Body>
void over_ranges(std::int64_t count, const Body& body) {
  in_parallel(count, [&](std::int64_t begin, std::int64_t end) { body(Range{begin, end}); });
}

}  // namespace

void ForwardPass::run() const {
  const auto transformed = panel_planes(kernel, from.channels, to.channels);
  over_ranges(panels_of(kernel, to.channels),
      [&](Range panels) { kernel.transform_weights(weights, panels, transformed.planes); });
  const std::int64_t tiles = tiles_of(grid);
  const std::int64_t size =
      tiles_at_once(kernel, tiles, from.channels, to.channels, at::get_num_threads());
  over_ranges((tiles + size - 1) / size,
      [&](Range blocks) { compute_blocks(blocks, size, transformed.planes); });
}

void ForwardPass::compute_blocks(
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

}  // namespace lockstep::nn::conv
