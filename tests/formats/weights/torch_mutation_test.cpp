#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "tests/formats/mutated.h"
#include "tests/formats/weights/expected_tensors.h"
#include "tests/formats/weights/mutation.h"
#include "tests/formats/weights/zip_bytes.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/tensor_bytes.h"
#include "lockstep/formats/weights/torch_file.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

using testing::Dice;
using Bytes = std::vector<std::uint8_t>;

constexpr int kTorchMutations = 5'000;
const std::vector<std::string> kSeeds{
    "views.pt", "checkpoint.pt", "nested.pt", "parameter.pt", "protocol5.pt", "types.pt"};

/// Spells a tree of values with every byte of its tensors.
struct Spelling {
  std::string operator()(std::monostate) const { return "N"; }
  std::string operator()(bool value) const { return value ? "T" : "F"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return concat('f', value); }
  std::string operator()(const std::string& value) const { return concat('"', value, '"'); }
  std::string operator()(const TorchOther& other) const { return concat('<', other.what, '>'); }
  std::string operator()(const TorchTensor& tensor) const {
    return concat(torch_name(tensor.type), shape_text(tensor.shape),
        std::string(tensor.bytes.begin(), tensor.bytes.end()));
  }
  std::string operator()(const TorchList& list) const {
    std::string text = "[";
    for (const TorchValue& item : list.items) text += std::visit(*this, item.content) + ",";
    return text + "]";
  }
  std::string operator()(const TorchDict& dict) const {
    std::string text = "{";
    for (const auto& [key, value] : dict.items) {
      text += std::visit(*this, std::variant<std::int64_t, std::string>(key)) + ":";
      text += std::visit(*this, value.content) + ",";
    }
    return text + "}";
  }
};

/// Returns the spelling of a file; nothing if it is refused.
std::optional<std::string> spelled(const Bytes& bytes) {
  testing::take_largest_allocation();
  try {
    const TorchFile file = parse_torch_file(bytes, "FILE");
    EXPECT_LE(testing::take_largest_allocation(), 128 * bytes.size());
    return std::visit(Spelling(), file.value.content);
  } catch (const DataError&) {
    EXPECT_LE(testing::take_largest_allocation(), 128 * bytes.size());
    return std::nullopt;
  }
}

/// Checks what must hold of any tensor, whatever the pickle says.
struct Soundness {
  template <typename T>
  void operator()(const T&) const {}
  void operator()(const TorchTensor& tensor) const {
    const auto bytes = tensor_bytes(tensor.type, tensor.shape);
    ASSERT_TRUE(bytes.has_value());
    EXPECT_EQ(tensor.bytes.size(), *bytes);
    // Touches each, so that a sanitizer sees those that are not there.
    EXPECT_GE(std::count(tensor.bytes.begin(), tensor.bytes.end(), 0), 0);
  }
  void operator()(const TorchList& list) const {
    for (const TorchValue& item : list.items) std::visit(*this, item.content);
  }
  void operator()(const TorchDict& dict) const {
    for (const auto& item : dict.items) std::visit(*this, item.value.content);
  }
};

// Checksums guard all contents, and both headers of each file say the same: what is read at all is
// the original.
TEST(TorchMutation, FilesOfOtherBytesReadAsBeforeOrNotAtAll) {
  Dice dice(1);
  int read = 0;
  for (int i = 0; i < kTorchMutations && !HasFailure(); ++i) {
    const Bytes whole = testing::file_bytes(testing::python_file(dice.one_of(kSeeds)));
    std::string bytes(whole.begin(), whole.end());
    // Half of the changes hit the headers: the directory lies in the last part.
    const std::size_t begin = dice.below(2) == 0 ? bytes.size() * 3 / 5 : 0;
    for (std::size_t changes = 1 + dice.below(2); changes > 0; --changes) {
      testing::mutate_bytes(bytes, begin, bytes.size(), dice);
    }
    SCOPED_TRACE(concat("mutation ", i));
    if (const auto spelling = spelled(Bytes(bytes.begin(), bytes.end()))) {
      EXPECT_EQ(*spelling, *spelled(whole));
      ++read;
    }
  }
  EXPECT_GT(read, kTorchMutations / 50);
  EXPECT_LT(read, kTorchMutations / 2);
}

/// Takes an archive apart, so that it can be put together with another part and right checksums.
std::vector<testing::ZipPart> parts_of(const Bytes& bytes) {
  std::vector<testing::ZipPart> parts;
  for (const ZipEntry& entry : read_zip(bytes, "FILE")) {
    parts.push_back({.name = entry.name, .content = {entry.bytes.begin(), entry.bytes.end()}});
  }
  return parts;
}

/// Changes a zip header's field on purpose, everything else being right.
void mutate_part(testing::ZipPart& part, Dice& dice) {
  const std::uint64_t size = part.content.size();
  switch (dice.below(9)) {
    case 0:
      part.method = static_cast<std::uint16_t>(1 + dice.below(99));
      break;
    case 1:
      part.flags = static_cast<std::uint16_t>(1 << dice.below(16));
      break;
    case 2:
      part.checksum = testing::checksum_of(part.content) ^ (1U << dice.below(32));
      break;
    case 3:
      part.size = size + 1 + dice.below(100);
      break;
    case 4:
      part.header = static_cast<std::uint32_t>(1 + dice.below(100'000));
      break;
    case 5:
      part.local_name = part.name + "x";
      break;
    case 6:
      part.local_size = static_cast<std::uint32_t>(size + 1 + dice.below(100));
      break;
    case 7:
      part.descriptor = std::string(1 + dice.below(30), '\0');
      break;
    default:
      part.content.resize(part.content.size() + 1 + dice.below(3));
      break;
  }
}

TEST(TorchMutation, ArchivesWithOneLieAreNeverRead) {
  Dice dice(2);
  for (int i = 0; i < kTorchMutations && !HasFailure(); ++i) {
    auto parts = parts_of(testing::file_bytes(testing::python_file(dice.one_of(kSeeds))));
    // A part that no reader looks into may have any content.
    std::erase_if(
        parts, [](const auto& part) { return part.name.find("/.") != std::string::npos; });
    auto& part = parts[dice.below(parts.size())];
    mutate_part(part, dice);
    if (part.flags == 2048) continue;  // which says that names are UTF-8, and so they are
    SCOPED_TRACE(concat("mutation ", i, " of ", part.name));
    EXPECT_FALSE(spelled(testing::zip_bytes(parts, dice.below(2) == 0)).has_value());
  }
}

/// Changes opcodes and their arguments: whole pieces of the pickle are moved, repeated, left out.
void mutate_pickle(std::string& pickle, Dice& dice) {
  static const std::string kOpcodes = ".(NK\x88\x89JMX)t\x85\x86\x87]ae}suqrhjRbQ\x93\x94\x95";
  const std::size_t at = 2 + dice.below(pickle.size() - 2);
  switch (dice.below(4)) {
    case 0:
      pickle[at] = kOpcodes[dice.below(kOpcodes.size())];
      break;
    case 1: {  // a small number somewhere becomes another
      const std::size_t number = pickle.find('K', at);
      if (number + 1 < pickle.size()) pickle[number + 1] = static_cast<char>(dice.below(256));
      break;
    }
    case 2: {  // a value that was kept is replaced by another
      const std::size_t kept = pickle.find('h', at);
      if (kept + 1 < pickle.size()) pickle[kept + 1] = static_cast<char>(dice.below(64));
      break;
    }
    default:
      testing::mutate_bytes(pickle, 2, pickle.size(), dice);
      break;
  }
}

TEST(TorchMutation, PicklesOfOtherOpcodesGiveSoundTensorsOrNone) {
  Dice dice(3);
  int read = 0;
  for (int i = 0; i < 2 * kTorchMutations && !HasFailure(); ++i) {
    auto parts = parts_of(testing::file_bytes(testing::python_file(dice.one_of(kSeeds))));
    for (auto& part : parts) {
      if (part.name.ends_with("data.pkl")) mutate_pickle(part.content, dice);
    }
    SCOPED_TRACE(concat("mutation ", i));
    const Bytes bytes = testing::zip_bytes(parts);
    testing::take_largest_allocation();
    try {
      const TorchFile file = parse_torch_file(bytes, "FILE");
      std::visit(Soundness(), file.value.content);
      ++read;
    } catch (const DataError&) {
    }
    // A view may repeat its elements, up to 64 MiB.
    EXPECT_LE(testing::take_largest_allocation(), (64U << 20) + 128 * bytes.size());
  }
  EXPECT_GT(read, kTorchMutations / 50);
  EXPECT_LT(read, kTorchMutations);
}

}  // namespace
}  // namespace lockstep
