#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

#include "lockstep/core/text.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/formats/weights/tensor_parts.h"

namespace {

using lockstep::JoinedTensor;
using lockstep::TensorEntry;
using lockstep::TensorFile;
using lockstep::testing::require;

struct TextSink final : lockstep::ByteSink {
  std::string text;

 private:
  void put(std::span<const std::uint8_t> bytes) override {
    text.append(bytes.begin(), bytes.end());
  }
};

/// A file with tensors `w`, of drawn size, and `e` without elements, and what it says of them.
struct Part {
  Part(std::uint8_t size, const std::string& parts, const std::string& name) : bytes(size) {
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
    const std::vector<TensorEntry> entries{{"w", lockstep::ElementType::kUint8, {size}, bytes},
        {"e", lockstep::ElementType::kUint8, {0, 2}, {}}};
    write_safetensors(
        sink, std::span(entries).first(name == "first" ? 2 : 1), {{lockstep::kTensorParts, parts}});
    const auto* const data = reinterpret_cast<const std::uint8_t*>(sink.text.data());
    file =
        std::make_unique<TensorFile>(lockstep::parse_safetensors({data, sink.text.size()}, name));
  }

  std::vector<std::uint8_t> bytes;
  TextSink sink;
  std::unique_ptr<TensorFile> file;
};

/// What is accepted is covered by its pieces, which follow each other.
void check_tensor(const JoinedTensor& tensor) {
  std::vector<std::uint8_t> pieces;
  for (const JoinedTensor::Piece& piece : tensor.pieces) {
    require(piece.begin == std::ssize(pieces));
    pieces.insert(pieces.end(), piece.bytes.begin(), piece.bytes.end());
  }
  require(tensor_bytes(tensor.type, tensor.shape) == pieces.size());
  std::vector<std::uint8_t> all(pieces.size());
  tensor.copy(0, all);
  require(all == pieces);
}

}  // namespace

// Two sizes, then the texts of two files, which a zero byte divides.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string text = lockstep::testing::text_of(data + 2, size - 2);
  const std::size_t end = text.find('\0');
  const std::array<std::string, 2> texts{
      text.substr(0, end), end == std::string::npos ? "{}" : text.substr(end + 1)};
  if (!lockstep::is_utf8(texts[0]) || !lockstep::is_utf8(texts[1])) return 0;
  const Part first(data[0], texts[0], "first"), second(data[1], texts[1], "second");
  lockstep::testing::is_taken([&] {
    const std::vector<lockstep::NamedTensorFile> files{
        {"first", first.file.get()}, {"second", second.file.get()}};
    for (const JoinedTensor& tensor : lockstep::join_parts(files)) check_tensor(tensor);
    const auto ranges = lockstep::ranges_in(*first.file, "first");
    const Part again(data[0], to_json(ranges), "again");
    require(lockstep::ranges_in(*again.file, "again") == ranges);
  });
  return 0;
}
