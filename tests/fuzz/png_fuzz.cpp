#include "tests/formats/image/image_bytes.h"
#include "tests/fuzz/image_decoding.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lockstep::testing::read_whole_and_part;
  read_whole_and_part({data, size});
  // The fuzzer does not find checksums, so that what lies behind them is tried with true ones.
  read_whole_and_part(lockstep::testing::with_true_checksums({data, data + size}));
  return 0;
}
