// Every kernel that this processor has against the plain one, byte for byte.

#include <gtest/gtest.h>
#include <vector>

#include "tests/data/transforms/test_images.h"

#include "lockstep/core/error.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/ops/affine.h"
#include "lockstep/data/transforms/ops/resample_kernel.h"

namespace lockstep::data {
namespace {

using testing::image_of;

Image resized(const ResampleKernel& kernel, const Image& image, ImageSize size,
    const ResizeOptions& options) {
  return resize_by(kernel, image.view(), size, {0, 0, size.width, size.height}, options);
}

TEST(ResampleKernels, GiveTheSameBytes) {
  for (const ResampleKernel* kernel : resample_kernels()) {
    for (const ImageSize from : {ImageSize{1, 1}, {2, 9}, {31, 33}, {100, 37}}) {
      for (const ImageSize to : {ImageSize{1, 2}, {5, 5}, {32, 31}, {47, 130}}) {
        for (const std::int64_t channels : {1, 3}) {
          const Image image = image_of("noise", from, channels);
          const Image expected = resized(plain_resample_kernel(), image, to, {});
          EXPECT_EQ(resized(*kernel, image, to, {}).pixels, expected.pixels)
              << kernel->name << " " << from.width << " " << to.width << " " << channels;
        }
      }
    }
  }
}

TEST(ResampleKernels, FlipAsFlippedAfterwards) {
  for (const ResampleKernel* kernel : resample_kernels()) {
    for (const ImageSize to : {ImageSize{5, 5}, {32, 31}, {30, 32}, {47, 10}}) {
      for (const std::int64_t channels : {1, 3}) {
        const Image image = image_of("noise", {30, 31}, channels);
        const Image plain = resized(*kernel, image, to, {.flip = false});
        const Image flipped = resized(*kernel, image, to, {.flip = true});
        EXPECT_EQ(flipped.pixels, flip(plain.view()).pixels) << to.width;
      }
    }
  }
}

// Very tall images take another way; the flip must not be done on both of its legs.
TEST(Resize, FlipsTallImagesOnce) {
  const Image image = image_of("noise", {3, 301});
  const Image plain = resize(image.view(), {5, 40}, {.flip = false});
  EXPECT_EQ(resize(image.view(), {5, 40}, {.flip = true}).pixels, flip(plain.view()).pixels);
}

TEST(Resize, GivesAPartAsOfTheWhole) {
  const Image image = image_of("noise", {60, 45});
  for (const ImageSize size : {ImageSize{60, 45}, {40, 30}, {100, 80}, {60, 80}, {80, 45}}) {
    const Image whole = resize(image.view(), size);
    for (const Box part : {Box{0, 0, 1, 1}, {3, 4, 20, 11}, {size.width - 1, 2, 1, 28}}) {
      EXPECT_EQ(resize(image.view(), size, part).pixels, crop(whole.view(), part).pixels)
          << size.width;
    }
  }
}

TEST(Resize, RefusesWhatCannotBe) {
  const Image image = image_of("noise", {8, 8});
  EXPECT_THROW(resize(image.view(), {0, 4}), InvalidArgument);
  EXPECT_THROW(resize(image.view(), {4, 4}, {0, 0, 5, 4}), InvalidArgument);
  EXPECT_THROW(resize(image.view(), {4, 4}, {-1, 0, 2, 2}), InvalidArgument);
  EXPECT_THROW(resize(image.view(), {4, 4}, {0, 3, 2, 2}), InvalidArgument);
  EXPECT_THROW(resize(image_of("noise", {8, 8}, 2).view(), {4, 4}), InvalidArgument);
}

// Turned, sheared and moved along each axis, by parts of a pixel and by whole ones, and so far that
// the runs inside of the image begin and end anywhere.
std::vector<AffineMap> affine_maps(ImageSize size) {
  const auto width = static_cast<double>(size.width);
  return {{.xx = 0.9, .xy = 0.2, .x0 = -0.3, .yx = -0.1, .yy = 1.2, .y0 = 0.7}, rotation(size, 27),
      rotation(size, -3), rotation(size, 90), {.xy = 0.27}, {.yx = -0.27}, {.x0 = 0.4},
      {.x0 = -0.45 * width}, {.x0 = 3}, {.y0 = -2.7}, {.y0 = 0.4 * width}, {}};
}

TEST(AffineKernels, GiveTheSameBytes) {
  for (const AffineKernel* kernel : affine_kernels()) {
    for (const ImageSize size : {ImageSize{1, 1}, {2, 5}, {8, 8}, {33, 30}, {71, 60}}) {
      for (const auto kind : {Interpolation::kBilinear, Interpolation::kBicubic}) {
        const Image image = image_of("noise", size);
        const AffineOptions options{kind, {1, 2, 3}};
        for (const AffineMap& map : affine_maps(size)) {
          EXPECT_EQ(transform_affine_by(*kernel, image.view(), map, options).pixels,
              transform_affine_by(plain_affine_kernel(), image.view(), map, options).pixels)
              << kernel->name << " " << size.width << " " << map.xy << " " << map.x0;
        }
      }
    }
  }
}

TEST(TransformAffine, RefusesGreyImages) {
  EXPECT_THROW(transform_affine(image_of("noise", {4, 4}, 1).view(), {}, {}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
