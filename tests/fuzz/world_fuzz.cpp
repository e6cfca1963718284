#include <cstddef>
#include <cstdint>

#include "tests/launch/rendezvous/play.h"

/// A world keeps its rules whatever nodes do: each byte is one draw.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::size_t next = 0;
  lockstep::launch::play([&](int count) { return next < size ? data[next++] % count : 0; });
  return 0;
}
