#include <algorithm>
#include <gtest/gtest.h>

#include "tests/formats/mutated.h"
#include "tests/formats/weights/mutation.h"
#include "tests/formats/weights/safetensors_bytes.h"
#include "tests/formats/weights/safetensors_reference.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/safetensors.h"

namespace lockstep {
namespace {

using testing::Dice;
using testing::ReferenceTensor;
using Bytes = std::vector<std::uint8_t>;

constexpr int kMutations = 5'000;
constexpr std::size_t kMostAllocated = 64 * 1024;

/// Returns what a file holds as the reference reader would; nothing if it is refused.
std::optional<std::map<std::string, ReferenceTensor>> contents(const Bytes& bytes) {
  testing::take_largest_allocation();
  std::optional<std::map<std::string, ReferenceTensor>> result;
  try {
    const TensorFile file = parse_safetensors(bytes, "FILE");
    result.emplace();
    for (const TensorEntry& entry : file.entries()) {
      result->emplace(entry.name, ReferenceTensor{std::string(*safetensors_name(entry.type)),
                                      entry.shape, {entry.bytes.begin(), entry.bytes.end()}});
    }
  } catch (const DataError&) {
  }
  EXPECT_LE(testing::take_largest_allocation(), kMostAllocated);
  return result;
}

std::string sample_header() {
  return R"({"__metadata__":{"format":"pt","x":"y"},)"
         R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
         R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]},)"
         R"("c":{"dtype":"I64","shape":[],"data_offsets":[28,36]},)"
         R"("d":{"dtype":"U8","shape":[0,7],"data_offsets":[36,36]}} )";
}

/// Replaces one of the words of the format by another, so that the JSON stays whole.
void mutate_words(std::string& header, Dice& dice) {
  static const std::vector<std::string> kWords{"0", "2", "3", "24", "28", "36", "-1", "1.5", "1e1",
      "18446744073709551615", "99999999999999999999", "4611686018427387904", "\"F32\"", "\"U8\"",
      "\"I64\"", "\"F16\"", "\"F4\"", "\"a\"", "\"b\"", "\"dtype\"", "\"shape\"",
      "\"data_offsets\"", "\"__metadata__\"", "[]", "[0,24]", "[24,28]", "[28,36]", "{}", "null",
      "true", "\"\"", ",", "}", "{", "[", "]", ":", " "};
  const std::string& from = dice.one_of(kWords);
  std::vector<std::size_t> places;
  for (std::size_t at = header.find(from); at != std::string::npos;
       at = header.find(from, at + 1)) {
    places.push_back(at);
  }
  if (!places.empty()) header.replace(dice.one_of(places), from.size(), dice.one_of(kWords));
}

void compare(const Bytes& bytes, int& read) {
  const auto expected = testing::reference_safetensors(bytes);
  const auto got = contents(bytes);
  ASSERT_EQ(got.has_value(), expected.has_value());
  if (!got) return;
  EXPECT_TRUE(*got == *expected);
  ++read;
}

TEST(SafetensorsMutation, HeadersOfOtherWordsReadAsTheFormatSaysOrNotAtAll) {
  Dice dice(1);
  int read = 0;
  for (int i = 0; i < kMutations && !HasFailure(); ++i) {
    std::string header = sample_header();
    for (std::size_t changes = 1 + dice.below(2); changes > 0; --changes)
      mutate_words(header, dice);
    SCOPED_TRACE(concat("mutation ", i, ": ", header));
    compare(testing::safetensors_bytes(header, 36), read);
  }
  EXPECT_GT(read, kMutations / 50);
  EXPECT_LT(read, kMutations / 2);
}

TEST(SafetensorsMutation, FilesOfOtherBytesReadAsTheFormatSaysOrNotAtAll) {
  Dice dice(2);
  int read = 0;
  const Bytes whole = testing::safetensors_bytes(sample_header(), 36);
  const std::size_t header_end = whole.size() - 36;
  for (int i = 0; i < kMutations && !HasFailure(); ++i) {
    std::string bytes(whole.begin(), whole.end());
    const bool in_length = dice.below(8) == 0;
    testing::mutate_bytes(bytes, in_length ? 0 : 8, in_length ? 8 : header_end, dice);
    if (dice.below(8) == 0) bytes.resize(dice.below(bytes.size() + 1));
    SCOPED_TRACE(concat("mutation ", i));
    compare(Bytes(bytes.begin(), bytes.end()), read);
  }
  EXPECT_GT(read, kMutations / 50);
  EXPECT_LT(read, kMutations / 2);
}

}  // namespace
}  // namespace lockstep
