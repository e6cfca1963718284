// Every kernel that this processor has against the plain one, byte for byte, and which are used.

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/data/transforms/test_images.h"

#include "lockstep/core/error.h"
#include "lockstep/data/pixels/pixel_scale.h"
#include "lockstep/data/transforms/augment.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/ops/affine.h"
#include "lockstep/data/transforms/ops/colour.h"
#include "lockstep/data/transforms/ops/resample.h"
#include "lockstep/data/transforms/rand_augment.h"
#include "lockstep/simd/instructions.h"

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

TEST(Kernels, AreThoseOfTheInstructions) {
  const std::size_t all = affine_kernels().size();
  for (const std::string name : {"plain", "avx2", "avx512"}) {
    ::setenv("LOCKSTEP_SIMD", name.c_str(), 1);
    EXPECT_EQ(affine_kernels().back()->name, name);
    const bool lacks_vbmi = name == "avx512" && !simd::has_vbmi_and_vnni();
    EXPECT_EQ(resample_kernels().back()->name, lacks_vbmi ? "avx2" : name);
    if (affine_kernels().size() == all) break;
  }
  ::setenv("LOCKSTEP_SIMD", "sse", 1);
  EXPECT_THROW(PixelScale(1), InvalidArgument);
  EXPECT_THROW(affine_kernels(), InvalidArgument);
  ::unsetenv("LOCKSTEP_SIMD");
}

// Every operation against the bytes of Pillow, timm and torchvision, which
// tests/conformance/transforms.py has hashed. None may differ.

using testing::fnv;
using testing::kContents;
using testing::kFnvStart;

using Arguments = std::vector<double>;
using Operation = std::function<Image(const Image&, const Arguments&)>;

struct Case {
  std::string line;
  std::string operation;
  ImageSize size;
  std::int64_t channels = 3;
  Arguments arguments;
  std::uint64_t hash = 0;
};

Case parsed(const std::string& line) {
  std::istringstream words(line);
  Case one;
  one.line = line;
  words >> one.operation >> one.size.width >> one.size.height >> one.channels;
  std::vector<std::string> rest;
  for (std::string word; words >> word;) rest.push_back(word);
  one.hash = std::stoull(rest.back(), nullptr, 16);
  rest.pop_back();
  for (const std::string& word : rest) one.arguments.push_back(std::stod(word));
  return one;
}

std::vector<Case> cases() {
  std::ifstream file(LOCKSTEP_CONFORMANCE_DIR "/transforms/bytes.txt");
  std::vector<Case> all;
  for (std::string line; std::getline(file, line);) all.push_back(parsed(line));
  return all;
}

std::int64_t whole(double number) { return static_cast<std::int64_t>(number); }

Operation step(AugmentOp op, Interpolation interpolation = Interpolation::kBicubic) {
  return [op, interpolation](const Image& image, const Arguments& numbers) {
    const AffineOptions options{interpolation, {124, 116, 104}};
    return apply_step(image, {op, numbers.empty() ? 0 : numbers[0]}, options);
  };
}

Operation resize_to(Interpolation interpolation) {
  return [interpolation](const Image& image, const Arguments& numbers) {
    return resize(image.view(), {whole(numbers[0]), whole(numbers[1])}, {interpolation});
  };
}

Operation resized_crop(Interpolation interpolation) {
  return [interpolation](const Image& image, const Arguments& numbers) {
    const Box box{whole(numbers[0]), whole(numbers[1]), whole(numbers[2]), whole(numbers[3])};
    const Image part = crop(image.view(), box);
    return resize(part.view(), {whole(numbers[4]), whole(numbers[5])}, {interpolation});
  };
}

Image padded_crop(const Image& image, const Arguments& numbers) {
  const std::int64_t padding = whole(numbers[0]);
  return crop_padded(image.view(), {whole(numbers[1]) - padding, whole(numbers[2]) - padding,
                                       whole(numbers[3]), whole(numbers[4])});
}

// The transform of evaluation scales levels to [0, 1] when there is neither mean nor deviation.
Image evaluation(const Image& image, const Arguments& numbers) {
  const ImageSize output{whole(numbers[0]), whole(numbers[1])};
  AugmentOptions options{.output = output, .normalization = {}, .centre_fraction = numbers[2]};
  Image shown = Image::of_size(output, image.channels);
  std::vector<float> values(shown.pixels.size());
  make_train_transform(options)->apply(image.view(), {}, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    shown.pixels[i] = static_cast<std::uint8_t>(std::lround(255 * values[i]));
  }
  return shown;
}

std::map<std::string, Operation> operations() {
  std::map<std::string, Operation> all{{"auto_contrast", step(AugmentOp::kAutoContrast)},
      {"equalize", step(AugmentOp::kEqualize)}, {"invert", step(AugmentOp::kInvert)},
      {"posterize", step(AugmentOp::kPosterize)}, {"solarize", step(AugmentOp::kSolarize)},
      {"solarize_add", step(AugmentOp::kSolarizeAdd)}, {"saturation", step(AugmentOp::kSaturation)},
      {"contrast", step(AugmentOp::kContrast)}, {"brightness", step(AugmentOp::kBrightness)},
      {"sharpness", step(AugmentOp::kSharpness)},
      {"flip", [](const Image& image, const Arguments&) { return flip(image.view()); }},
      {"padded_crop", padded_crop}, {"evaluation", evaluation}};
  for (const auto& [name, kind] : {std::pair{"_bilinear", Interpolation::kBilinear},
           std::pair{"_bicubic", Interpolation::kBicubic}}) {
    all[concat("resize", name)] = resize_to(kind);
    all[concat("resized_crop", name)] = resized_crop(kind);
    all[concat("rotate", name)] = step(AugmentOp::kRotate, kind);
    all[concat("shear_x", name)] = step(AugmentOp::kShearX, kind);
    all[concat("shear_y", name)] = step(AugmentOp::kShearY, kind);
    all[concat("translate_x", name)] = step(AugmentOp::kTranslateX, kind);
    all[concat("translate_y", name)] = step(AugmentOp::kTranslateY, kind);
  }
  return all;
}

TEST(Transforms, GiveTheBytesOfPillow) {
  const auto all = operations();
  std::map<std::string, int> seen;
  for (const Case& one : cases()) {
    std::uint64_t hash = kFnvStart;
    for (const char* content : kContents) {
      const Image image = image_of(content, one.size, one.channels);
      hash = fnv(hash, all.at(one.operation)(image, one.arguments).pixels);
    }
    EXPECT_EQ(hash, one.hash) << one.line;
    ++seen[one.operation];
  }
  for (const auto& [name, operation] : all) EXPECT_GE(seen[name], 4) << name;
}

}  // namespace
}  // namespace lockstep::data
