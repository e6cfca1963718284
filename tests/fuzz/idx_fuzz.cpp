#include <cstdlib>

#include "tests/formats/idx_reference.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/gzip.h"
#include "lockstep/formats/idx.h"

namespace {

constexpr int kDimensions = 3;
constexpr std::uint64_t kMaximumBytes = 1 << 20;

bool starts_as_gzip(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

std::optional<lockstep::IdxArray> parse(std::span<const std::uint8_t> bytes) {
  try {
    lockstep::MemorySource compressed(bytes, "fuzz");
    lockstep::GunzipSource source(compressed);
    return lockstep::parse_idx(source, kDimensions, kMaximumBytes);
  } catch (const lockstep::DataError&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(data, size);
  const auto array = parse(bytes);
  if (starts_as_gzip(bytes)) return 0;
  const auto expected = lockstep::testing::reference_idx(bytes, kDimensions, kMaximumBytes);
  if (array.has_value() != expected.has_value()) std::abort();
  if (array && (array->shape != expected->shape || array->values != expected->values)) std::abort();
  return 0;
}
