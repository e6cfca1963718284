#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/data/pixels/pixel_scale.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/rand_augment.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// The augmentations that have a name.
enum class AugmentKind { kNone, kCropFlip, kTimm };

/// Which part of an image is taken, and how it comes to the size of the output.
enum class CropMode {
  kCentre,   ///< the shorter side is scaled to the output's, then the centre is taken
  kPadded,   ///< black on all sides, then a random part of the output's size; nothing is scaled
  kResized,  ///< a part of random area and aspect ratio, scaled
};

/// Returns the channels' mean and standard deviation over ImageNet, in units of 255.
Normalization imagenet_normalization();

/// An augmentation part by part, in the order in which the parts are applied; the defaults leave an
/// image as it is but for size and scale.
///
/// As in timm, RandAugment turns colour jitter off unless it is forced.
struct AugmentOptions {
  ImageSize output = {224, 224};
  Normalization normalization = imagenet_normalization();
  CropMode crop = CropMode::kCentre;
  Interpolation interpolation = Interpolation::kBicubic;  ///< of crop and RandAugment
  double centre_fraction = 1;     ///< of kCentre: what the centre keeps of the scaled shorter side
  std::int64_t padding = 4;       ///< of kPadded: pixels on each side
  RandomArea area = {};           ///< of kResized
  double flip = 0;                ///< the probability of a horizontal flip
  std::string rand_augment = {};  ///< such as "rand-m9-mstd0.5-inc1"; empty: none
  ColourJitter colour_jitter = {};
  bool force_colour_jitter = false;
  RandomErasing erasing = {};
};

/// Returns the options of a kind.
///
/// * none: scale and centre alone, as in evaluation.
/// * crop-flip: what is usual: for outputs of up to 64 pixels a padding of 4 and a
///   random crop (CIFAR), for larger ones a bilinear random resized crop (torchvision's ImageNet
///   reference); either with a horizontal flip in half of the cases.
/// * timm: create_transform(is_training=True, color_jitter=0.4, auto_augment=
///   "rand-m9-mstd0.5-inc1", interpolation="bicubic", re_prob=0.25, re_mode="pixel") of timm
///   1.0.31.
AugmentOptions augment_options(AugmentKind kind, ImageSize output,
    const Normalization& normalization = imagenet_normalization());

/// Throws InvalidArgument for options out of range; RandAugment's string is not checked here.
void check_options(const AugmentOptions& options);

/// Makes the transform of training; options that cannot be are an InvalidArgument.
///
/// RandAugment and colour jitter need three channels, the other parts take one as well. A number
/// of channels that does not fit is an InvalidArgument of apply().
///
///     auto transform = make_train_transform(augment_options(AugmentKind::kTimm, {32, 32}));
///     std::vector<float> numbers(32 * 32 * 3);
///     transform->apply(image, {.seed = 42, .epoch = 0, .index = 7}, numbers);
std::unique_ptr<const ImageTransform> make_train_transform(const AugmentOptions& options);

/// Makes the transform of evaluation, timm's without augmentation: the centre alone, bicubic.
///
/// The centre keeps 0.875 of the scaled shorter side, or all of it for outputs of up to 64 pixels,
/// whose images have that size already.
std::unique_ptr<const ImageTransform> make_eval_transform(
    ImageSize output, const Normalization& normalization = imagenet_normalization());

}  // namespace lockstep::data
