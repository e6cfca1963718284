#include "lockstep/formats/image/image_options.h"

#include "lockstep/core/error.h"

namespace lockstep {

void check_limits(
    ImageSize size, const ImageLimits& limits, const std::string& name, std::int64_t offset) {
  const auto refuse = [&](const auto&... reason) {
    throw DataError(concat(
        name, ": offset ", offset, ": the image of ", size.width, " x ", size.height, " pixels ",
        reason...));
  };
  if (size.width <= 0 || size.height <= 0) refuse("is empty");
  if (size.width > limits.side || size.height > limits.side) {
    refuse("has a side above the limit of ", limits.side);
  }
  if (size.width > limits.pixels / size.height) {
    refuse("has more pixels than the limit of ", limits.pixels);
  }
}

}  // namespace lockstep
