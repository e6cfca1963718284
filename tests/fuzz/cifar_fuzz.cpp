#include "tests/formats/cifar_bytes.h"
#include "tests/fuzz/fuzz.h"

#include "lockstep/formats/cifar.h"

using lockstep::testing::is_taken;
using lockstep::testing::require;

constexpr std::uint64_t kMaximumBytes = 1 << 16;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(data, size);
  if (size > kMaximumBytes) return 0;
  for (const auto variant : {lockstep::CifarVariant::kCifar10, lockstep::CifarVariant::kCifar100}) {
    lockstep::CifarImages images;
    const bool is_read = is_taken([&] {
      lockstep::MemorySource source(bytes, "fuzz");
      lockstep::parse_cifar(source, variant, images, kMaximumBytes);
    });
    const auto expected = lockstep::testing::reference_cifar(bytes, variant);
    require(is_read == expected.has_value());
    if (!is_read) continue;
    require(images.labels == expected->labels && images.pixels == expected->pixels);
    require(images.coarse_labels == expected->coarse_labels);
  }
  return 0;
}
