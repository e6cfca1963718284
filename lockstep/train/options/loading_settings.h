#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/core/enum_names.h"

namespace lockstep {

enum class Augment { kNone, kCropFlip, kTimm };
constexpr auto names_of(Augment) {
  return std::array{EnumName{Augment::kNone, "none"}, EnumName{Augment::kCropFlip, "crop-flip"},
      EnumName{Augment::kTimm, "timm"}};
}

enum class BadImages { kFail, kSkip };
constexpr auto names_of(BadImages) {
  return std::array{EnumName{BadImages::kFail, "fail"}, EnumName{BadImages::kSkip, "skip"}};
}

/// The settings of how images of a set reach the model.
struct LoadingSettings {
  Augment augment = Augment::kNone;    ///< of the training images
  std::optional<int> image_size = {};  ///< height and width that the model sees
  std::optional<int> workers = {};     ///< threads of each rank that prepare batches
  BadImages bad_images = BadImages::kFail;
  std::int64_t cache_decoded = 0;  ///< bytes of decoded images that each rank keeps
  double val_split = 0;  ///< share of the training set that is not trained on but validated on
};

/// Returns the number of workers for a rank that computes on this number of cores.
///
/// The number asked for; otherwise none where a batch is a mere copy or the rank has one core, for
/// a worker on the computing core is slower than none, and half of the cores elsewhere, 8 at most.
int workers_of(const LoadingSettings& settings, int cores, bool is_mere_copy);

}  // namespace lockstep
