#pragma once

#include <optional>

namespace lockstep {

enum class Augment { kNone, kCropFlip, kTimm };
enum class BadImages { kFail, kSkip };

const char* name_of(Augment value);
const char* name_of(BadImages value);

/// Says how the images of a set reach the model.
struct LoadingSettings {
  Augment augment = Augment::kNone;    ///< of the training images
  std::optional<int> image_size = {};  ///< height and width that the model sees
  std::optional<int> workers = {};     ///< threads of each rank that prepare batches
  BadImages bad_images = BadImages::kFail;
  double val_split = 0;  ///< share of the training set that is not trained on but validated on
};

/// Throws InvalidArgument that names the flag unless every value is possible.
void check_loading(const LoadingSettings& settings);

/// Gives the number of workers for a rank that computes on so many cores.
///
/// The asked number; otherwise none where a batch is a mere copy or the rank has one core, for a
/// worker on the computing core is slower than none, and half of the cores elsewhere, 8 at most.
int workers_of(const LoadingSettings& settings, int cores, bool is_mere_copy);

}  // namespace lockstep
