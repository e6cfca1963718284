// Every operation against the bytes of Pillow, timm and torchvision, which
// tests/conformance/transforms.py has hashed. None may differ.

#include <cmath>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "tests/data/transforms/test_images.h"

#include "lockstep/core/error.h"
#include "lockstep/data/transforms/augment.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/ops/colour.h"
#include "lockstep/data/transforms/ops/levels.h"
#include "lockstep/data/transforms/rand_augment.h"

namespace lockstep::data {
namespace {

using testing::fnv;
using testing::image_of;
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
      {"grey", [](const Image& image, const Arguments&) { return grey(image.view()); }},
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
