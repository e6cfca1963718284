#pragma once

// The loops of affine maps, included once by each source that compiles them for one instruction
// set. A vector holds the channels of one pixel. Everything is computed in doubles and in the order
// of Pillow's Geometry.c: it cuts levels off instead of rounding them, so the last bit counts.

#include "lockstep/data/transforms/ops/affine.h"

namespace lockstep::data {
namespace {

using Floats = float __attribute__((vector_size(16), aligned(4)));
using Doubles = double __attribute__((vector_size(32)));
using Words = std::int32_t __attribute__((vector_size(16)));

constexpr std::int64_t kPixelFloats = 4;

inline Doubles load(const float* pixel) {
  return __builtin_convertvector(*reinterpret_cast<const Floats*>(pixel), Doubles);
}

inline void store(Doubles colours, std::uint8_t* out) {
  Words levels = __builtin_convertvector(colours, Words);
  levels = levels < 0 ? Words{} : levels;
  levels = levels > 255 ? Words{} + 255 : levels;
  for (int channel = 0; channel < 3; ++channel) {
    out[channel] = static_cast<std::uint8_t>(levels[channel]);
  }
}

inline std::int64_t floor_of(double x) {
  const auto whole = static_cast<std::int64_t>(x);
  return whole - (x < static_cast<double>(whole));
}

// A place between pixels: the pixel to its upper left, and how far it is from there.
struct Place {
  const float* pixel;
  std::int64_t stride;
  double dx;
  double dy;
};

inline Place place_of(const AffineSource& source, double x, double y) {
  const std::int64_t column = floor_of(x - 0.5);
  const std::int64_t row = floor_of(y - 0.5);
  return {source.origin + row * source.stride + column * kPixelFloats, source.stride,
      x - 0.5 - static_cast<double>(column), y - 0.5 - static_cast<double>(row)};
}

inline Doubles line(Doubles first, Doubles second, double at) {
  return first + (second - first) * at;
}

inline Doubles bilinear_along(const float* pixel, double dx) {
  return line(load(pixel), load(pixel + kPixelFloats), dx);
}

inline Doubles bilinear(const Place& place) {
  return line(bilinear_along(place.pixel, place.dx),
      bilinear_along(place.pixel + place.stride, place.dx), place.dy);
}

template <typename Vector, typename Share>
inline Vector curve(Vector v1, Vector v2, Vector v3, Vector v4, Share at) {
  const Vector p2 = -v1 + v3;
  const Vector p3 = 2 * (v1 - v2) + v3 - v4;
  const Vector p4 = -v1 + v2 - v3 + v4;
  return v2 + at * (p2 + at * (p3 + at * p4));
}

// On a pixel the curve is that pixel exactly, so its neighbours need not be looked at: shears and
// translations move along one axis only.
inline Doubles bicubic_along(const float* pixel, double dx) {
  if (dx == 0) return load(pixel);
  return curve(load(pixel - kPixelFloats), load(pixel), load(pixel + kPixelFloats),
      load(pixel + 2 * kPixelFloats), dx);
}

inline Doubles bicubic(const Place& place) {
  const Doubles own = bicubic_along(place.pixel, place.dx);
  if (place.dy == 0) return own;
  return curve(bicubic_along(place.pixel - place.stride, place.dx), own,
      bicubic_along(place.pixel + place.stride, place.dx),
      bicubic_along(place.pixel + 2 * place.stride, place.dx), place.dy);
}

template <Doubles (*interpolate)(const Place&)>
inline void map_row(const AffineSource& shared_source, const AffineMap& shared_map, std::int64_t y,
    std::uint8_t* out) {
  // Copies: `out` could point to the originals, for all that the compiler knows.
  const AffineSource source = shared_source;
  const AffineMap map = shared_map;
  const auto width = static_cast<double>(source.width);
  const auto height = static_cast<double>(source.height);
  const double y_out = static_cast<double>(y) + 0.5;
  for (std::int64_t i = 0; i < source.width; ++i, out += 3) {
    const double x_out = static_cast<double>(i) + 0.5;
    const double x_in = map.xx * x_out + map.xy * y_out + map.x0;
    const double y_in = map.yx * x_out + map.yy * y_out + map.y0;
    if (x_in < 0 || x_in >= width || y_in < 0 || y_in >= height) continue;
    store(interpolate(place_of(source, x_in, y_in)), out);
  }
}

}  // namespace
}  // namespace lockstep::data
