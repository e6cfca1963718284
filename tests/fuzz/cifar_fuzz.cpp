#include <cstdlib>

#include "tests/formats/cifar_reference.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/cifar.h"

namespace {

constexpr std::uint64_t kMaximumBytes = 1 << 16;

std::optional<lockstep::CifarImages> parse(
    std::span<const std::uint8_t> bytes, lockstep::CifarVariant variant) {
  lockstep::CifarImages images;
  try {
    lockstep::MemorySource source(bytes, "fuzz");
    lockstep::parse_cifar(source, variant, images, kMaximumBytes);
  } catch (const lockstep::DataError&) {
    return std::nullopt;
  }
  return images;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(data, size);
  if (size > kMaximumBytes) return 0;
  for (const auto variant : {lockstep::CifarVariant::kCifar10, lockstep::CifarVariant::kCifar100}) {
    const auto images = parse(bytes, variant);
    const auto expected = lockstep::testing::reference_cifar(bytes, variant);
    if (images.has_value() != expected.has_value()) std::abort();
    if (!images) continue;
    const bool is_equal = images->labels == expected->labels &&
                          images->pixels == expected->pixels &&
                          images->coarse_labels == expected->coarse_labels;
    if (!is_equal) std::abort();
  }
  return 0;
}
