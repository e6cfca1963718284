#include "lockstep/formats/weights/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using Bytes = std::vector<std::uint8_t>;

/// Makes the header of llm.c's files and so many bytes of tokens.
Bytes headed(std::uint64_t magic, std::uint64_t version, std::uint64_t count, std::size_t bytes) {
  Bytes file;
  for (const std::uint64_t number : {magic, version, count}) append_little_endian(file, number, 4);
  file.resize(1024);
  for (std::size_t i = 0; i < bytes; ++i) file.push_back(static_cast<std::uint8_t>(i + 1));
  return file;
}

std::string token_fault(const Bytes& bytes, const std::string& name = "train.bin") {
  return message_of<DataError>([&] { parse_tokens(bytes, name); });
}

TEST(TokenFile, OfLlmCSaysItsTypeByItsHeader) {
  const Bytes gpt2 = headed(20240520, 1, 3, 6), llama = headed(20240801, 7, 3, 12);
  const TensorEntry narrow = parse_tokens(gpt2, "train.bin");
  EXPECT_EQ(narrow.type, ElementType::kUint16);
  EXPECT_THAT(narrow.shape, ElementsAre(3));
  EXPECT_THAT(narrow.bytes, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(parse_tokens(llama, "train.bin").type, ElementType::kUint32);
  EXPECT_THAT(parse_tokens(llama, "train.bin").shape, ElementsAre(3));
}

TEST(TokenFile, OfLlmCMustFitItsHeader) {
  EXPECT_EQ(token_fault(headed(20240520, 1, 4, 6)),
      "train.bin: offset 8: the header counts 4 tokens of uint16, but 6 bytes follow it");
  EXPECT_EQ(token_fault(headed(20240520, 2, 3, 6)),
      "train.bin: offset 4: version 2 of llm.c's tokens 20240520 is not 1");
  Bytes cut = headed(20240801, 7, 0, 0);
  cut.resize(100);
  EXPECT_EQ(
      token_fault(cut), "train.bin: offset 100: the file ends within the header of llm.c's tokens");
}

TEST(TokenFile, OfNanoGptBeginsWithItsFirstToken) {
  const Bytes bytes{1, 0, 2, 0, 255, 195, 7, 0};
  EXPECT_EQ(parse_tokens(bytes, "val.bin").type, ElementType::kUint16);
  EXPECT_THAT(parse_tokens(bytes, "val.bin").shape, ElementsAre(4));
  EXPECT_EQ(parse_tokens(bytes, "/data/val.uint32.bin").type, ElementType::kUint32);
  EXPECT_THAT(parse_tokens(bytes, "/data/val.uint32.bin").shape, ElementsAre(2));
}

TEST(TokenFile, RefusesWhatHasNoWholeTokens) {
  EXPECT_EQ(token_fault({1, 2, 3}),
      "train.bin: offset 3: a file of 3 bytes has no whole number of uint16 tokens");
  EXPECT_THAT(token_fault({}), HasSubstr("a file of 0 bytes has no whole number"));
  EXPECT_THAT(token_fault({1, 2, 3, 4, 5, 6}, "train.uint32.bin"), HasSubstr("of uint32 tokens"));
}

TEST(TokenFile, RefusesUint32ThatItsNameDoesNotSay) {
  Bytes bytes;
  for (std::uint64_t token = 0; token < 40; ++token) append_little_endian(bytes, 300 + token, 4);
  EXPECT_THAT(token_fault(bytes), HasSubstr("its tokens seem to be uint32; name it so, as in"));
  EXPECT_THAT(parse_tokens(bytes, "train.uint32.bin").shape, ElementsAre(40));
  Bytes large, narrow, letters;  // of a vocabulary of 128,256; of 50,257; of four
  for (std::uint64_t i = 0; i < 80; ++i) {
    append_little_endian(large, i * 40'009 % 128'256, 4);
    append_little_endian(narrow, i * 40'009 % 50'257, 2);
    append_little_endian(letters, i % 4, 2);
  }
  EXPECT_THAT(token_fault(large), HasSubstr("its tokens seem to be uint32"));
  EXPECT_THAT(parse_tokens(narrow, "train.bin").shape, ElementsAre(80));
  EXPECT_THAT(parse_tokens(letters, "train.bin").shape, ElementsAre(80));
}

Bytes array(const std::string& descr, const std::string& shape, std::size_t data_bytes) {
  const std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  Bytes bytes{0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
  append_little_endian(bytes, header.size(), 2);
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.resize(bytes.size() + data_bytes);
  return bytes;
}

TEST(TokenFile, MayBeAnArrayOfNumPy) {
  EXPECT_EQ(parse_tokens(array("<i4", "(3,)", 12), "train.npy").type, ElementType::kInt32);
  EXPECT_THAT(token_fault(array("<i4", "(3, 1)", 12)),
      HasSubstr("tokens must be integers in one dimension, of int64 or fewer bits, not int32 of "
                "shape (3, 1)"));
  EXPECT_THAT(token_fault(array("<f4", "(3,)", 12)), HasSubstr("not float32 of shape (3)"));
}

TEST(TokenFile, OfTextHasATokenForEachByte) {
  const testing::TemporaryFolder folder;
  const TensorFile file = read_bytes_as_tokens(folder.write("a.txt", Bytes{'a', 0xc3, 0xa4}));
  EXPECT_EQ(file.entries()[0].type, ElementType::kUint8);
  EXPECT_THAT(file.entries()[0].bytes, ElementsAre('a', 0xc3, 0xa4));
}

}  // namespace
}  // namespace lockstep
