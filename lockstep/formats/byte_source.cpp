#include "lockstep/formats/byte_source.h"

#include <algorithm>

namespace lockstep {

MemorySource::MemorySource(std::span<const std::uint8_t> bytes, std::string name)
    : rest_(bytes), name_(std::move(name)) {}

std::size_t MemorySource::read(std::span<std::uint8_t> out) {
  const std::size_t count = std::min(out.size(), rest_.size());
  std::copy_n(rest_.begin(), count, out.begin());
  rest_ = rest_.subspan(count);
  return count;
}

}  // namespace lockstep
