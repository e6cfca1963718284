#include "tests/formats/idx_bytes.h"
#include "tests/fuzz/fuzz.h"

#include "lockstep/formats/idx.h"
#include "lockstep/formats/input_file.h"

namespace {

using lockstep::testing::require;

constexpr int kDimensions = 3;
constexpr std::uint64_t kMaximumBytes = 1 << 20;

bool starts_as_gzip(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(data, size);
  lockstep::IdxArray array;
  const bool is_read = lockstep::testing::is_taken([&] {
    lockstep::MemorySource compressed(bytes, "fuzz");
    lockstep::GunzipSource source(compressed);
    array = lockstep::parse_idx(source, kDimensions, kMaximumBytes);
  });
  if (starts_as_gzip(bytes)) return 0;
  const auto expected = lockstep::testing::reference_idx(bytes, kDimensions, kMaximumBytes);
  require(is_read == expected.has_value());
  require(!is_read || (array.shape == expected->shape && array.values == expected->values));
  return 0;
}
