#include "lockstep/train/options/loading_settings.h"

#include <algorithm>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr int kLargestSide = 16384;
constexpr int kMostWorkers = 256;
constexpr int kMostWorkersUnasked = 8;

}  // namespace

const char* name_of(Augment value) {
  if (value == Augment::kNone) return "none";
  return value == Augment::kCropFlip ? "crop-flip" : "timm";
}

const char* name_of(BadImages value) { return value == BadImages::kFail ? "fail" : "skip"; }

void check_loading(const LoadingSettings& settings) {
  const int side = settings.image_size.value_or(1), workers = settings.workers.value_or(0);
  check(
      1 <= side && side <= kLargestSide, "train: --image-size must be 1 to ", kLargestSide, ": ",
      side);
  check(
      0 <= workers && workers <= kMostWorkers, "train: --workers must be 0 to ", kMostWorkers, ": ",
      workers);
  check(
      settings.val_split >= 0 && settings.val_split < 1,
      "train: --val-split must be at least 0 and below 1: ", settings.val_split);
}

int workers_of(const LoadingSettings& settings, int cores, bool is_mere_copy) {
  if (settings.workers) return *settings.workers;
  if (is_mere_copy || cores < 2) return 0;
  return std::min(cores / 2, kMostWorkersUnasked);
}

}  // namespace lockstep
