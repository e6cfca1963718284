#include "tests/fuzz/fuzz.h"

#include "lockstep/formats/weights/token_file.h"

using lockstep::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const char* const name : {"train.bin", "train.uint32.bin"}) {
    lockstep::testing::is_taken([&] {
      const lockstep::TensorEntry entry = lockstep::parse_tokens({data, size}, name);
      require(entry.shape.size() == 1);
      require(lockstep::tensor_bytes(entry.type, entry.shape) == entry.bytes.size());
      require(entry.bytes.data() + entry.bytes.size() == data + size);
    });
  }
  return 0;
}
