#include "lockstep/data/dataset.h"

#include <algorithm>
#include <limits>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

void check_parts(const InMemoryImages::Parts& parts) {
  const auto& shape = parts.shape;
  check(shape.channels > 0 && shape.height > 0 && shape.width > 0,
      "InMemoryImages: an image must have pixels: ", shape.channels, " x ", shape.height, " x ",
      shape.width);
  check(!parts.labels.empty(), "InMemoryImages: the set must not be empty: ", parts.name);
  const std::size_t expected = parts.labels.size() * static_cast<std::size_t>(shape.elements());
  check(parts.pixels.size() == expected,
      "InMemoryImages: pixels must fit labels and shape: ", parts.pixels.size(), " instead of ",
      expected);
  const int largest = *std::max_element(parts.labels.begin(), parts.labels.end());
  check(largest < parts.classes,
      "InMemoryImages: labels must be less than the number of classes: ", largest, " of ",
      parts.classes);
}

}  // namespace

InMemoryImages::InMemoryImages(Parts parts) {
  check_parts(parts);
  parts_ = std::make_shared<const Parts>(std::move(parts));
}

InMemoryImages InMemoryImages::repeated(std::int64_t times) const {
  check(1 <= times && times <= std::numeric_limits<std::int64_t>::max() / size(),
      "InMemoryImages: a set is repeated at least once, and its size must not overflow: ", times,
      " times");
  InMemoryImages longer = *this;
  longer.repetitions_ *= times;
  return longer;
}

}  // namespace lockstep::data
