#pragma once

#include "lockstep/data/dataset.h"

namespace lockstep::data {

/// Says what mock images look like; the same options make the same images everywhere.
struct MockOptions {
  std::int64_t size = 256;
  ImageShape shape = {.channels = 1, .height = 28, .width = 28};
  std::int64_t classes = 10;
  std::uint64_t seed = 0;
};

/// Makes one batch of random images and labels; `mock(...).repeated(times)` makes an epoch of it.
InMemoryImages mock(const MockOptions& options = {});

}  // namespace lockstep::data
