#include "lockstep/data/transforms/augment.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

// CIFAR has 32, Tiny ImageNet 64.
constexpr std::int64_t kSmallOutput = 64;

// As that of the images that are read; products of sizes stay far from overflow.
constexpr std::int64_t kLongestSide = 16'384;

// Bounds of shares and ratios, for the same reason.
constexpr double kLeast = 0.001;
constexpr double kMost = 1000;

bool is_small(ImageSize size) { return std::max(size.width, size.height) <= kSmallOutput; }

void check_share(const char* what, double share) {
  check(0 <= share && share <= 1, "AugmentOptions: ", what, " must be from 0 to 1: ", share);
}

void check_range(const char* what, double least, double most) {
  check(kLeast <= least && least <= most && most <= kMost, "AugmentOptions: ", what,
      " must be a range between ", kLeast, " and ", kMost, ": ", least, " to ", most);
}

void check_jitter(const ColourJitter& jitter) {
  for (const double bound : {jitter.brightness, jitter.contrast, jitter.saturation}) {
    check(0 <= bound && std::isfinite(bound),
        "AugmentOptions: colour jitter must not be negative: ", bound);
  }
}

void check_erasing(const RandomErasing& erasing) {
  check_share("the probability of erasing", erasing.probability);
  check_range("the erased share", erasing.least_share, erasing.most_share);
  check_range("the erased ratio", erasing.least_ratio, 1);
  check(erasing.count > 0, "AugmentOptions: erased rectangles must be counted: ", erasing.count);
}

// timm fills what an affine map leaves open with the mean colour.
std::array<std::uint8_t, 3> mean_colour(const Normalization& normalization) {
  std::array<std::uint8_t, 3> colour{};
  for (std::size_t i = 0; i < normalization.mean.size() && i < colour.size(); ++i) {
    const double level = std::nearbyint(255 * static_cast<double>(normalization.mean[i]));
    colour[i] = static_cast<std::uint8_t>(std::clamp(level, 0., 255.));
  }
  return colour;
}

// The scales of those numbers of channels that the normalisation fits.
std::vector<PixelScale> scales_of(const Normalization& normalization) {
  std::vector<PixelScale> scales;
  for (const std::int64_t channels : {1, 3}) {
    const auto fits = [channels](const std::vector<float>& values) {
      return values.empty() || std::ssize(values) == channels;
    };
    if (fits(normalization.mean) && fits(normalization.std))
      scales.emplace_back(channels, normalization);
  }
  check(!scales.empty(), "AugmentOptions: mean and std must have a value for 1 or for 3 channels: ",
      normalization.mean.size(), " and ", normalization.std.size());
  return scales;
}

// Carries the options out, each part with its own random stream.
class Augmentation : public ImageTransform {
 public:
  explicit Augmentation(const AugmentOptions& options)
      : options_(options),
        scales_(scales_of(options.normalization)),
        affine_{options.interpolation, mean_colour(options.normalization)} {
    check_options(options);
    if (!options.rand_augment.empty()) rand_augment_ = parse_rand_augment(options.rand_augment);
    jitters_ = options.colour_jitter.any() && (!rand_augment_ || options.force_colour_jitter);
    check(!needs_colours() || scales_.back().channels() == 3,
        "AugmentOptions: RandAugment and colour jitter need 3 channels, mean and std have 1");
  }

  ImageSize output() const override { return options_.output; }

  Box region(ImageSize size, const SampleKey& key) const override {
    if (options_.crop != CropMode::kResized) return ImageTransform::region(size, key);
    RandomStream stream(key, Draw::kCrop);
    return random_area_box(size, options_.area, stream);
  }

  void apply(const ImageView& part, const SampleKey& key, std::span<float> out) const override {
    const PixelScale& scale = scale_for(part.channels);
    check_output(part, out);
    const Image image = with_colours(placed(part, key), key);
    scale.to_float(image.pixels.data(), out.data(), std::ssize(image.pixels));
    if (options_.erasing.probability == 0) return;
    RandomStream stream(key, Draw::kErasing);
    erase_randomly(out, options_.output, options_.erasing, stream);
  }

 private:
  bool needs_colours() const { return rand_augment_.has_value() || jitters_; }

  const PixelScale& scale_for(std::int64_t channels) const {
    check(channels == 3 || !needs_colours(),
        "augment: RandAugment and colour jitter need an image of 3 channels, this one has ",
        channels, "; take none or crop-flip");
    for (const PixelScale& scale : scales_) {
      if (scale.channels() == channels) return scale;
    }
    throw InvalidArgument(concat("augment: the image must have ", scales_.front().channels(),
        " channels, as mean and std: ", channels));
  }

  void check_output(const ImageView& part, std::span<float> out) const {
    const std::int64_t numbers = options_.output.width * options_.output.height * part.channels;
    check(std::ssize(out) == numbers, "augment: the output must have room for ", numbers,
        " numbers: ", out.size());
  }

  Image placed(const ImageView& part, const SampleKey& key) const {
    RandomStream stream(key, Draw::kFlip);
    const bool flips = stream.uniform() < options_.flip;
    const ResizeOptions resizing{options_.interpolation, flips};
    if (options_.crop == CropMode::kResized) return resize(part, options_.output, resizing);
    if (options_.crop == CropMode::kPadded) return padded(part, flips, key);
    const ImageSize around = size_around(part.size, options_.output, options_.centre_fraction);
    return resize(part, around, centre_box(around, options_.output), resizing);
  }

  Image padded(const ImageView& image, bool flips, const SampleKey& key) const {
    const std::int64_t padding = options_.padding;
    const ImageSize room{image.size.width + 2 * padding, image.size.height + 2 * padding};
    check(options_.output.width <= room.width && options_.output.height <= room.height,
        "augment: an image of ", image.size.width, " x ", image.size.height,
        " is too small for a padded crop of ", options_.output.width, " x ",
        options_.output.height);
    RandomStream stream(key, Draw::kCrop);
    Box box = random_box(room, options_.output, stream);
    box.left -= padding;
    box.top -= padding;
    Image part = crop_padded(image, box);
    return flips ? flip(part.view()) : part;
  }

  Image with_colours(Image image, const SampleKey& key) const {
    if (!needs_colours()) return image;
    RandomStream stream(key, Draw::kColour);
    if (rand_augment_) image = after(std::move(image), draw_steps(*rand_augment_, stream));
    if (jitters_) image = after(std::move(image), draw_jitter(options_.colour_jitter, stream));
    return image;
  }

  Image after(Image image, const std::vector<AugmentStep>& steps) const {
    for (const AugmentStep& step : steps) image = apply_step(std::move(image), step, affine_);
    return image;
  }

  AugmentOptions options_;
  std::vector<PixelScale> scales_;
  AffineOptions affine_;
  std::optional<RandAugmentOptions> rand_augment_;
  bool jitters_ = false;
};

}  // namespace

Normalization imagenet_normalization() {
  return {.mean = {0.485F, 0.456F, 0.406F}, .std = {0.229F, 0.224F, 0.225F}};
}

AugmentOptions augment_options(
    AugmentKind kind, ImageSize output, const Normalization& normalization) {
  AugmentOptions options{.output = output, .normalization = normalization};
  switch (kind) {
    case AugmentKind::kNone:
      options.centre_fraction = is_small(output) ? 1 : 0.875;
      break;
    case AugmentKind::kCropFlip:
      options.crop = is_small(output) ? CropMode::kPadded : CropMode::kResized;
      options.interpolation = Interpolation::kBilinear;
      options.flip = 0.5;
      break;
    case AugmentKind::kTimm:
      options.crop = CropMode::kResized;
      options.flip = 0.5;
      options.rand_augment = "rand-m9-mstd0.5-inc1";
      options.colour_jitter = {0.4, 0.4, 0.4};
      options.erasing.probability = 0.25;
      break;
  }
  return options;
}

void check_options(const AugmentOptions& options) {
  const auto [width, height] = options.output;
  check(0 < width && width <= kLongestSide && 0 < height && height <= kLongestSide,
      "AugmentOptions: the output must have 1 to ", kLongestSide, " pixels a side: ", width, " x ",
      height);
  check_range("the fraction of the centre", options.centre_fraction, 1);
  check(0 <= options.padding && options.padding <= kLongestSide,
      "AugmentOptions: padding must be 0 to ", kLongestSide, ": ", options.padding);
  check_range("the area's share", options.area.least_share, options.area.most_share);
  check_range("the area's ratio", options.area.least_ratio, options.area.most_ratio);
  check_share("the probability of a flip", options.flip);
  check_jitter(options.colour_jitter);
  check_erasing(options.erasing);
}

std::unique_ptr<const ImageTransform> make_train_transform(const AugmentOptions& options) {
  return std::make_unique<Augmentation>(options);
}

std::unique_ptr<const ImageTransform> make_eval_transform(
    ImageSize output, const Normalization& normalization) {
  return make_train_transform(augment_options(AugmentKind::kNone, output, normalization));
}

}  // namespace lockstep::data
