#include <algorithm>
#include <cstring>

#include "tests/formats/weights/torch_bytes.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/formats/weights/torch_file.h"
#include "lockstep/formats/weights/weight_file.h"
#include "lockstep/formats/weights/zip_archive.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

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

std::vector<lockstep::testing::ZipPart> parts_of(std::span<const std::uint8_t> archive) {
  std::vector<lockstep::testing::ZipPart> parts;
  for (const auto& entry : lockstep::read_zip(archive, "fuzz")) {
    parts.push_back({.name = entry.name, .content = {entry.bytes.begin(), entry.bytes.end()}});
  }
  return parts;
}

/// Changes the content of one file of an archive: mostly the pickle, which comes first.
void mutate_content(std::string& content, std::size_t most) {
  std::vector<std::uint8_t> bytes(content.begin(), content.end());
  bytes.resize(std::max(most, bytes.size()));
  const std::size_t size = LLVMFuzzerMutate(bytes.data(), content.size(), bytes.size());
  content.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
}

}  // namespace

// Changes behind the checksums, which are then made right: otherwise hardly any change would be
// seen by more than the zip reader.
extern "C" std::size_t LLVMFuzzerCustomMutator(
    std::uint8_t* data, std::size_t size, std::size_t most, unsigned int seed) {
  if (seed % 8 == 0) return LLVMFuzzerMutate(data, size, most);
  try {
    auto parts = parts_of({data, size});
    if (parts.empty()) return LLVMFuzzerMutate(data, size, most);
    auto& part = seed % 4 == 0 ? parts[seed / 8 % parts.size()] : parts.front();
    mutate_content(part.content, part.content.size() + 64);
    const auto archive = lockstep::testing::zip_bytes(parts);
    if (archive.size() > most) return LLVMFuzzerMutate(data, size, most);
    std::memcpy(data, archive.data(), archive.size());
    return archive.size();
  } catch (const lockstep::DataError&) {
    return LLVMFuzzerMutate(data, size, most);
  }
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
