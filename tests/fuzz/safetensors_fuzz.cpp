#include <algorithm>

#include "tests/formats/weights/safetensors_reference.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/formats/weights/weight_file.h"

namespace {

using lockstep::TensorEntry;
using lockstep::TensorFile;
using lockstep::testing::require;

bool is_same(const TensorEntry& left, const TensorEntry& right) {
  return left.name == right.name && left.type == right.type && left.shape == right.shape &&
         std::ranges::equal(left.bytes, right.bytes);
}

/// What was read is written, and reads the same again.
void check_round_trip(const TensorFile& file) {
  static const lockstep::testing::TemporaryFolder kDirectory;
  const auto path = kDirectory.path() / "again.safetensors";
  lockstep::write_weights(path, file.entries(), file.metadata());
  const TensorFile again = lockstep::read_safetensors(path);
  require(std::ranges::equal(again.entries(), file.entries(), is_same));
  require(again.metadata() == file.metadata());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto expected = lockstep::testing::reference_safetensors({data, data + size});
  const bool is_read = lockstep::testing::is_taken([&] {
    const TensorFile file = lockstep::parse_safetensors({data, size}, "fuzz");
    require(expected.has_value() && expected->size() == file.entries().size());
    for (const TensorEntry& entry : file.entries()) {
      const auto& tensor = expected->at(entry.name);
      require(tensor.shape == entry.shape && std::ranges::equal(tensor.bytes, entry.bytes));
    }
    check_round_trip(file);
  });
  require(is_read == expected.has_value());
  return 0;
}
