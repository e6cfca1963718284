#include "bench/synthetic/synthetic.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "bench/synthetic/pattern.h"
#include "lockstep/core/error.h"
#include "lockstep/data/split_mix.h"

// Note [Synthetic classes]
// ~~~~~~~~~~~~~~~~~~~~~~~~
// The class of an image is the shape in its middle and, in sets of more than 10 classes, the family
// of textures behind it: class c has shape c modulo 10 and family c / 10. With 10 classes there is
// one family of all 10 textures, with 100 each texture is a family. What else could tell the class
// is drawn without looking at it: the colours (the shape may be the brighter or the darker), the
// size, place and angle of the shape, period, angle and phase of the texture, small shapes of any
// kind that lie about, noise.

namespace lockstep::data {
namespace {

constexpr std::int64_t kMostStrays = 2;
constexpr std::int64_t kMostNoise = 24;
constexpr std::int64_t kLeastContrast = 70;
constexpr std::array<std::int64_t, 2> kRadii = {kSide * 9 / 32, kSide * 13 / 32};
constexpr std::array<std::int64_t, 2> kStrayRadii = {kSide / 16, kSide / 10};
constexpr std::int64_t kFull = 256;  // of a shape over a pixel

using Colour = std::array<std::int64_t, 3>;

std::int64_t luminance(const Colour& colour) {
  return (77 * colour[0] + 150 * colour[1] + 29 * colour[2]) >> 8;
}

Colour draw_colour(SplitMix& stream) {
  return {stream.between(0, 255), stream.between(0, 255), stream.between(0, 255)};
}

Colour between(const Colour& dark, const Colour& bright, std::int64_t value) {
  Colour mixed{};
  for (std::size_t i = 0; i < 3; ++i) mixed[i] = dark[i] + (bright[i] - dark[i]) * value / 255;
  return mixed;
}

/// A shape with its colour, somewhere in the image.
struct Figure {
  std::int64_t shape;
  Colour colour;
  std::int64_t radius;
  Placement placement;

  /// Returns how much of the pixel at a place it covers, 0 to kFull: its edge is one pixel wide.
  std::int64_t cover(Point place, std::int64_t pixel) const {
    const std::int64_t away = shape_at(shape).distance(placement(place)) * radius / kUnit;
    return std::clamp<std::int64_t>(kFull / 2 - away * kFull / pixel, 0, kFull);
  }
};

/// All that was drawn for an image.
struct Scene {
  std::int64_t texture;
  Placement texture_placement;
  std::uint64_t salt;
  Colour dark;
  Colour bright;
  std::vector<Figure> figures;  // the later ones cover the others
  std::int64_t noise;
};

Point draw_place(SplitMix& stream, Point extent, std::int64_t margin) {
  return {stream.between(std::min(margin, extent.x / 2), std::max(extent.x - margin, extent.x / 2)),
      stream.between(std::min(margin, extent.y / 2), std::max(extent.y - margin, extent.y / 2))};
}

/// Draws a colour that is clearly brighter or darker than the background.
Colour draw_figure_colour(SplitMix& stream, std::int64_t background) {
  while (true) {
    const Colour colour = draw_colour(stream);
    if (std::abs(luminance(colour) - background) >= kLeastContrast) return colour;
  }
}

// One draw a statement, here and below: C++ leaves open in which order arguments are computed.
Figure draw_figure(SplitMix& stream, std::int64_t shape, std::int64_t background,
    std::array<std::int64_t, 2> radii, Point extent) {
  const Colour colour = draw_figure_colour(stream, background);
  const std::int64_t radius = stream.between(radii[0], radii[1]);
  const Point place = draw_place(stream, extent, radius * 7 / 8);
  const std::int64_t angle = stream.between(0, kUnit - 1);
  return {shape, colour, radius, Placement(place, radius, angle)};
}

/// Draws the two colours of the background, neither equal nor far apart.
std::array<Colour, 2> draw_background(SplitMix& stream) {
  while (true) {
    const Colour first = draw_colour(stream);
    const Colour second = draw_colour(stream);
    const std::int64_t contrast = std::abs(luminance(first) - luminance(second));
    if (40 <= contrast && contrast <= 90) return {first, second};
  }
}

Scene draw_scene(SplitMix& stream, const SyntheticClass& kind, Point extent) {
  const std::int64_t texture = kind.first_texture + stream.between(0, kind.textures - 1);
  const Point origin = draw_place(stream, extent, 0);
  const std::int64_t period = stream.between(kSide / 8, kSide * 2 / 7);
  const auto colours = draw_background(stream);
  const std::int64_t background = (luminance(colours[0]) + luminance(colours[1])) / 2;
  const std::int64_t angle = stream.between(0, kUnit - 1);
  const std::uint64_t salt = stream.next();
  const std::int64_t noise = stream.between(0, kMostNoise);
  Scene scene{texture, Placement(origin, period, angle), salt, colours[0], colours[1], {}, noise};
  for (std::int64_t strays = stream.between(0, kMostStrays); strays > 0; --strays) {
    const std::int64_t shape = stream.between(0, kShapes - 1);
    scene.figures.push_back(draw_figure(stream, shape, background, kStrayRadii, extent));
  }
  scene.figures.push_back(draw_figure(stream, kind.shape, background, kRadii, extent));
  return scene;
}

Colour colour_at(const Scene& scene, Point place, std::int64_t pixel) {
  const std::int64_t value =
      texture_at(scene.texture).value(scene.texture_placement(place), scene.salt);
  Colour colour = between(scene.dark, scene.bright, value);
  for (const Figure& figure : scene.figures) {
    const std::int64_t cover = figure.cover(place, pixel);
    for (std::size_t i = 0; i < 3; ++i) {
      colour[i] += (figure.colour[i] - colour[i]) * cover / kFull;
    }
  }
  return colour;
}

std::uint8_t with_noise(std::int64_t value, std::int64_t noise, SplitMix& stream) {
  return static_cast<std::uint8_t>(
      std::clamp<std::int64_t>(value + stream.between(-noise, noise), 0, 255));
}

std::uint64_t seed_of(const SyntheticKey& key) {
  const std::uint64_t split = SplitMix::mix(key.seed * 2 + (key.train ? 1 : 0));
  return SplitMix::mix(split ^ static_cast<std::uint64_t>(key.index));
}

}  // namespace

std::string SyntheticClass::name() const {
  if (textures == kTextures) return shape_at(shape).name;
  return concat(shape_at(shape).name, "-", texture_at(first_texture).name);
}

SyntheticClass synthetic_class(std::int64_t label, std::int64_t classes) {
  check(1 <= classes && classes <= kMostSyntheticClasses && 0 <= label && label < classes,
      "synthetic: the label must be less than the classes, and these 1 to 100: ", label, " of ",
      classes);
  const std::int64_t families = (classes + kShapes - 1) / kShapes;
  const std::int64_t family = label / kShapes;
  const std::int64_t first = family * kTextures / families;
  return {label % kShapes, first, (family + 1) * kTextures / families - first};
}

Image synthetic_image(
    const SyntheticClass& kind, const SyntheticKey& key, ImageSize size, std::int64_t channels) {
  check(channels == 1 || channels == 3, "synthetic: channels must be 1 or 3: ", channels);
  Image image = Image::of_size(size, channels);
  const std::int64_t pixel = std::max<std::int64_t>(kSide / std::min(size.width, size.height), 1);
  SplitMix stream(seed_of(key));
  const Scene scene = draw_scene(stream, kind, {size.width * pixel, size.height * pixel});
  std::uint8_t* out = image.pixels.data();
  for (std::int64_t y = 0; y < size.height; ++y) {
    for (std::int64_t x = 0; x < size.width; ++x) {
      const Point place{x * pixel + pixel / 2, y * pixel + pixel / 2};
      const Colour colour = colour_at(scene, place, pixel);
      if (channels == 1) *out++ = with_noise(luminance(colour), scene.noise, stream);
      for (std::int64_t i = 0; channels == 3 && i < 3; ++i) {
        *out++ = with_noise(colour[static_cast<std::size_t>(i)], scene.noise, stream);
      }
    }
  }
  return image;
}

}  // namespace lockstep::data
