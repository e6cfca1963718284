#include "tests/fuzz/image_decoding.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::testing::read_whole_and_part({data, size});
  return 0;
}
