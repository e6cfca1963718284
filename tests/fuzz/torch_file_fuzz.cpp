#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/zip_mutation.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/formats/weights/torch_file.h"
#include "lockstep/formats/weights/weight_file.h"

namespace {

using lockstep::TensorEntry;
using lockstep::TensorFile;
using lockstep::testing::require;

/// What was read is written, and reads the same again.
void check_round_trip(const TensorFile& file) {
  static const lockstep::testing::TemporaryFolder kDirectory;
  const auto path = kDirectory.path() / "again.pt";
  lockstep::write_weights(path, file.entries());
  const TensorFile again = lockstep::tensors_of(lockstep::read_torch_file(path));
  require(again.entries().size() == file.entries().size());
  for (const TensorEntry& entry : file.entries()) {
    const TensorEntry* other = again.find(entry.name);
    require(other != nullptr && other->type == entry.type && other->shape == entry.shape);
    require(std::ranges::equal(other->bytes, entry.bytes));
  }
}

}  // namespace

// Mostly the pickle, which comes first.
extern "C" std::size_t LLVMFuzzerCustomMutator(
    std::uint8_t* data, std::size_t size, std::size_t most, unsigned int seed) {
  return lockstep::testing::mutate_archive(
      data, size, most, seed, [seed](auto& parts) -> lockstep::testing::ZipPart& {
        return seed % 4 == 0 ? parts[seed / 8 % parts.size()] : parts.front();
      });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::testing::is_taken([&] {
    const auto file = lockstep::parse_torch_file({data, size}, "fuzz");
    const TensorFile tensors = lockstep::tensors_of(file);
    std::size_t bytes = 0;
    for (const TensorEntry& entry : tensors.entries()) {
      require(entry.bytes.size() == lockstep::tensor_bytes(entry.type, entry.shape));
      bytes += entry.bytes.size();
    }
    // Views that repeat their elements up to the limit would only cost time.
    if (bytes < 1 << 20) check_round_trip(tensors);
  });
  return 0;
}
