#pragma once

// The transforms of tiles in Note [Winograd]: a vector holds neighbouring channels of one pixel.

#include "lockstep/nn/conv/winograd_forms.h"
#include "lockstep/nn/conv/winograd_kernel.h"
#include "lockstep/nn/conv/winograd_products.h"

namespace lockstep::nn::conv {
namespace {

using fused::BFloat16;
using fused::store;

struct TilePlace {
  std::int64_t image, row, column;
};

inline TilePlace place_of(const TileGrid& grid, std::int64_t tile) {
  const std::int64_t in_image = tile % (grid.rows * grid.columns);
  return {tile / (grid.rows * grid.columns), in_image / grid.columns, in_image % grid.columns};
}

/// The size of images that tiles are read from, and the first pixel of a tile in them.
struct Window {
  std::int64_t height, width;
  std::int64_t image, row, column;
};

template <typename Form>
inline Window input_window(const TileGrid& grid, std::int64_t tile) {
  const TilePlace place = place_of(grid, tile);
  return {grid.height, grid.width, place.image, place.row * Form::kOut - grid.padding,
      place.column * Form::kOut - grid.padding};
}

template <typename Form>
inline Window output_window(const TileGrid& grid, std::int64_t tile) {
  const TilePlace place = place_of(grid, tile);
  return {grid.out_height, grid.out_width, place.image, place.row * Form::kOut,
      place.column * Form::kOut};
}

/// Where each pixel of a tile is; those outside of the image are `outside`.
template <int kSize, typename T>
struct PixelPointers {
  T* at[kSize][kSize];

  PixelPointers() = default;
  PixelPointers(const Window& window, const Pixels& pixels, T* outside) {
    T* const first = static_cast<T*>(pixels.data);
    for (int y = 0; y < kSize; ++y) {
      for (int x = 0; x < kSize; ++x) {
        const std::int64_t row = window.row + y, column = window.column + x;
        const bool is_inside =
            row >= 0 && row < window.height && column >= 0 && column < window.width;
        const std::int64_t pixel = (window.image * window.height + row) * window.width + column;
        at[y][x] = is_inside ? first + pixel * pixels.channels : outside;
      }
    }
  }
};

// Transforms columns, then rows: from kFrom x kFrom to kTo x kTo.
template <int kFrom, int kTo, typename Load, typename Transform, typename Store>
inline void transform_square(const Load& from, const Transform& transform, const Store& to) {
  Floats between[kTo][kFrom];
#pragma GCC unroll 6
  for (int x = 0; x < kFrom; ++x) {
    Floats column[kFrom], done[kTo];
#pragma GCC unroll 6
    for (int y = 0; y < kFrom; ++y) column[y] = from(y, x);
    transform(column, done);
#pragma GCC unroll 6
    for (int y = 0; y < kTo; ++y) between[y][x] = done[y];
  }
#pragma GCC unroll 6
  for (int y = 0; y < kTo; ++y) {
    Floats done[kTo];
    transform(between[y], done);
#pragma GCC unroll 6
    for (int x = 0; x < kTo; ++x) to(y, x, done[x]);
  }
}

/// Calls body with each vector's first channel, and how many channels are left from there.
template <typename Body>
inline void each_vector(std::int64_t channels, const Body& body) {
  std::int64_t channel = 0;
  for (; channel + kLanes <= channels; channel += kLanes) {
    body(channel, std::int64_t{kLanes});
  }
  if (channel < channels) body(channel, channels - channel);
}

template <typename Form, typename T>
inline void transform_input_of(
    const TileBlock& block, const Pixels& from, Range tiles, const TilePlanes& to) {
  for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const PixelPointers<Form::kIn, const T> pixels(
        input_window<Form>(block.grid, block.first + tile), from,
        static_cast<const T*>(block.zeros));
    float* const row = to.data + tile * to.row_stride;
    each_vector(from.channels, [&](std::int64_t channel, std::int64_t room) {
      transform_square<Form::kIn, Form::kIn>(
          [&](int y, int x) { return load(pixels.at[y][x] + channel, room); }, Form::input,
          [&](int y, int x, Floats value) {
            store_all(row + (y * Form::kIn + x) * to.plane_stride + channel, value);
          });
    });
  }
}

// Panels are far apart in memory, so each is filled for some tiles before the next begins.
constexpr std::int64_t kTilesAtOnce = 16;

template <typename Form, typename T>
inline void transform_gradient_of(
    const TileBlock& block, const Pixels& from, Range tiles, const PanelPlanes& to) {
  using Pointers = PixelPointers<Form::kOut, const T>;
  for (std::int64_t first = tiles.begin; first < tiles.end; first += kTilesAtOnce) {
    const std::int64_t left = tiles.end - first, count = left < kTilesAtOnce ? left : kTilesAtOnce;
    Pointers pixels[kTilesAtOnce];
    for (std::int64_t tile = 0; tile < count; ++tile) {
      const Window window = output_window<Form>(block.grid, block.first + first + tile);
      pixels[tile] = Pointers(window, from, static_cast<const T*>(block.zeros));
    }
    each_vector(from.channels, [&](std::int64_t channel, std::int64_t room) {
      float* const rows = panel_of(to, 0, channel / kPanel) + first * kPanel + channel % kPanel;
      for (std::int64_t tile = 0; tile < count; ++tile) {
        transform_square<Form::kOut, Form::kIn>(
            [&](int y, int x) { return load(pixels[tile].at[y][x] + channel, room); },
            Form::gradient,
            [&](int y, int x, Floats value) {
              store_all(rows + tile * kPanel + (y * Form::kIn + x) * to.plane_stride, value);
            });
      }
    });
  }
}

template <typename Form, typename T>
inline void transform_output_of(const TileBlock& block, const PanelPlanes& from, const float* bias,
    Range tiles, const Pixels& to) {
  for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const PixelPointers<Form::kOut, T> pixels(
        output_window<Form>(block.grid, block.first + tile), to, nullptr);
    each_vector(to.channels, [&](std::int64_t channel, std::int64_t room) {
      const float* const row =
          panel_of(from, 0, channel / kPanel) + tile * kPanel + channel % kPanel;
      const Floats start = bias == nullptr ? Floats{} : load(bias + channel, room);
      transform_square<Form::kIn, Form::kOut>(
          [&](int y, int x) { return load(row + (y * Form::kIn + x) * from.plane_stride); },
          Form::output,
          [&](int y, int x, Floats value) {
            T* const pixel = pixels.at[y][x];
            if (pixel != nullptr) store(pixel + channel, value + start, room);
          });
    });
  }
}

// The steps of WinogradKernel, for pixels of either type.
template <typename Form>
inline void transform_input(
    const TileBlock& block, const Pixels& from, Range tiles, const TilePlanes& to) {
  const bool is_float = from.element == Element::kFloat;
  is_float ? transform_input_of<Form, float>(block, from, tiles, to)
           : transform_input_of<Form, BFloat16>(block, from, tiles, to);
}

template <typename Form>
inline void transform_gradient(
    const TileBlock& block, const Pixels& from, Range tiles, const PanelPlanes& to) {
  const bool is_float = from.element == Element::kFloat;
  is_float ? transform_gradient_of<Form, float>(block, from, tiles, to)
           : transform_gradient_of<Form, BFloat16>(block, from, tiles, to);
}

template <typename Form>
inline void transform_output(const TileBlock& block, const PanelPlanes& from, const float* bias,
    Range tiles, const Pixels& to) {
  const bool is_float = to.element == Element::kFloat;
  is_float ? transform_output_of<Form, float>(block, from, bias, tiles, to)
           : transform_output_of<Form, BFloat16>(block, from, bias, tiles, to);
}

}  // namespace
}  // namespace lockstep::nn::conv
