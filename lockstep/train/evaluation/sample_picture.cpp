#include "lockstep/train/evaluation/sample_picture.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <torch/types.h>

#include "lockstep/data/batch.h"
#include "lockstep/formats/image/png.h"
#include "lockstep/train/input/sheet_numbers.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostSide = 256;

// Undefined where no input is an image.
torch::Tensor read_image(const data::Samples& set, std::int64_t index) {
  const auto inputs = set.inputs();
  const auto image = std::ranges::find_if(
      inputs, [](const data::InputForm& input) { return is_pictured(input.sizes); });
  if (!inputs.empty() && image == inputs.end()) return {};
  const Batch batch = data::empty_batch(1, {.shape = set.shape(), .inputs = inputs});
  const std::array<data::SampleKey, 1> keys{{{.index = index}}};
  set.read(keys, batch);
  const auto place = static_cast<std::size_t>(image - inputs.begin());
  return batch.input_tensors()[place][0].to(torch::kFloat).clone();
}

void undo_normalization(torch::Tensor& image, const data::Normalization& normalization) {
  for (std::size_t c = 0; c < normalization.std.size(); ++c) {
    const auto channel = static_cast<std::int64_t>(c);
    image[channel].mul_(normalization.std[c]).add_(normalization.mean[c]);
  }
}

// A hair beyond black and white is rounding.
void spread_if_no_pixels(torch::Tensor& image) {
  constexpr double kHair = 1e-3;
  const auto least = image.min().item<double>(), most = image.max().item<double>();
  if (least >= -kHair && most <= 1 + kHair) return;
  image.sub_(least);
  if (most > least) image.div_(most - least);
}

torch::Tensor shrunk(const torch::Tensor& image) {
  const std::int64_t height = image.size(1), width = image.size(2);
  const std::int64_t longest = std::max(height, width);
  if (longest <= kMostSide) return image;
  const auto side = [&](std::int64_t own) {
    return std::max<std::int64_t>(1, own * kMostSide / longest);
  };
  return at::adaptive_avg_pool2d(image.unsqueeze(0), {side(height), side(width)})[0];
}

}  // namespace

std::vector<std::uint8_t> sample_picture(
    const data::Samples& set, std::int64_t index, const data::Normalization& normalization) {
  torch::Tensor image = read_image(set, index);
  if (!image.defined()) return {};
  undo_normalization(image, normalization);
  if (image.size(0) != 3) image = image.slice(0, 0, 1);
  spread_if_no_pixels(image);
  const torch::Tensor pixels = shrunk(image)
                                   .permute({1, 2, 0})
                                   .mul(255)
                                   .round()
                                   .clamp(0, 255)
                                   .to(torch::kUInt8)
                                   .contiguous();
  return encode_png({.size = {.width = pixels.size(1), .height = pixels.size(0)},
      .channels = pixels.size(2),
      .pixels = {pixels.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(pixels.numel())}});
}

}  // namespace lockstep
