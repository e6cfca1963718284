#pragma once

#include <memory>

#include "lockstep/data/transforms/augment_options.h"
#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

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
