#include "lockstep/train/input/model_fit.h"

#include <algorithm>
#include <unistd.h>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/models/catalogue.h"

namespace lockstep {
namespace {

constexpr std::int64_t kColours = 3;

const char* kind_of_images(std::int64_t channels) {
  return channels == kColours ? "images of 3 channels" : "images of 1 channel";
}

const char* data_of(std::int64_t channels) {
  return channels == kColours ? "cifar10:DIR, cifar100:DIR, images:DIR"
                              : "fashion-mnist, mnist:DIR";
}

}  // namespace

std::int64_t usable_memory() {
  const std::int64_t machine =
      std::int64_t{::sysconf(_SC_PHYS_PAGES)} * std::int64_t{::sysconf(_SC_PAGESIZE)};
  return std::min(machine, cgroup_memory_limit().value_or(machine));
}

void check_cache_fits(std::int64_t bytes, std::int64_t memory) {
  check(bytes <= memory, "train: --cache-decoded ", bytes,
      " is more than the memory that there is, ", memory,
      " bytes; give less, and leave room for the model and the other ranks");
}

void check_model_fits(const TrainOptions& options, const data::Samples& set, std::int64_t classes,
    std::int64_t memory) {
  const data::ImageShape images = set.shape();
  const std::int64_t batch = std::min(options.batch_size, set.size());
  const nn::NetNeeds needs = nn::net_needs(options.model);
  check(!set.inputs().empty() || std::min(images.height, images.width) >= needs.least_side,
      "train: ", options.model, " halves images until nothing is left of ", images.height, " x ",
      images.width, " pixels; give --image-size ", needs.least_side, " or more");
  check(!set.inputs().empty() || needs.channels == 0 || images.channels == needs.channels,
      "train: ", options.model, " takes ", kind_of_images(needs.channels), ", and those of --data ",
      options.data.name, " have ", images.channels, "; take ", data_of(needs.channels),
      " or mock, whose images fit the model");
  // Weights and gradients of the last layer; a batch and its scores.
  const std::int64_t pixels = images.channels * images.height * images.width;
  const std::int64_t numbers = 2 * classes * (needs.features + 1) + batch * (pixels + classes);
  constexpr std::int64_t kMegabyte = 1'000'000;
  const std::int64_t megabytes = numbers * std::int64_t{sizeof(float)} / kMegabyte;
  check(megabytes <= memory / kMegabyte, "train: the last layer of ", options.model, " for ",
      classes, " classes, and a batch of ", batch, ", need at least ", megabytes,
      " MB, but there are ", memory / kMegabyte,
      " MB of memory; give fewer --num-classes or a smaller --batch-size");
}

}  // namespace lockstep
