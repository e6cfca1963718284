#include "tests/fuzz/fuzz.h"

#include "lockstep/formats/weights/npy.h"

using lockstep::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::testing::is_taken([&] {
    const lockstep::TensorEntry entry = lockstep::parse_npy({data, size}, "x", "fuzz");
    require(lockstep::tensor_bytes(entry.type, entry.shape) == entry.bytes.size());
    require(entry.bytes.data() + entry.bytes.size() == data + size);
  });
  return 0;
}
