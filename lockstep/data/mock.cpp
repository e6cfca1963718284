#include "lockstep/data/mock.h"

#include <random>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

void check_options(const MockOptions& options) {
  check(options.size > 0, "mock: the size must be positive: ", options.size);
  check(
      1 <= options.classes && options.classes <= 256,
      "mock: classes must be 1 to 256: ", options.classes);
  const auto& shape = options.shape;
  for (const std::int64_t extent : {shape.channels, shape.height, shape.width}) {
    check(1 <= extent && extent <= 65536, "mock: an image must have 1 to 65536 of each: ", extent);
  }
}

}  // namespace

InMemoryImages mock(const MockOptions& options) {
  check_options(options);
  // The standard fixes this engine's numbers but not those of its distributions.
  std::mt19937_64 engine(options.seed);
  std::vector<std::uint8_t> pixels(
      static_cast<std::size_t>(options.size * options.shape.elements()));
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(options.size));
  for (auto& pixel : pixels) pixel = static_cast<std::uint8_t>(engine() >> 56);
  for (auto& label : labels) {
    label =
        static_cast<std::uint8_t>((engine() >> 32) % static_cast<std::uint64_t>(options.classes));
  }
  return InMemoryImages(
      {.name = "mock",
       .shape = options.shape,
       .classes = options.classes,
       .pixels = std::move(pixels),
       .labels = std::move(labels)});
}

}  // namespace lockstep::data
