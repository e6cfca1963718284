// Two targets: JPEG and PNG have dictionaries of their own.

#include "tests/formats/image/image_bytes.h"
#include "tests/fuzz/fuzz.h"

#include "lockstep/formats/image/image_reader.h"

namespace {

using namespace lockstep;

// Small, so that the fuzzer makes many files a second.
const ImageOptions kOptions{
    .apply_orientation = true, .limits = {.side = 2048, .pixels = 1 << 18, .scans = 20}};

Box inner_part(ImageSize size) {
  return {
      size.width / 3, size.height / 3, size.width - size.width / 2, size.height - size.height / 2};
}

/// Reads an image file whole and in part: whatever is read whole must have that part.
void read_whole_and_part(std::span<const std::uint8_t> bytes) {
  Image whole, part;
  const bool has_whole = testing::is_taken([&] { whole = decode_image(bytes, "fuzz", kOptions); });
  const bool has_part = testing::is_taken([&] {
    const ImageReader reader(bytes, "fuzz", kOptions);
    part = reader.read(inner_part(reader.size()));
  });
  if (!has_whole) return;
  testing::require(has_part);
  testing::require(part.pixels == crop(whole.view(), inner_part(whole.size)).pixels);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_whole_and_part({data, size});
  // The fuzzer does not find checksums, so that what lies behind them is tried with true ones.
  if (size > 0 && data[0] == 0x89)
    read_whole_and_part(testing::with_true_checksums({data, data + size}));
  return 0;
}
