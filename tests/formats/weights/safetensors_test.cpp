#include "lockstep/formats/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/mutated.h"
#include "tests/formats/weights/expected_tensors.h"
#include "tests/formats/weights/safetensors_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::safetensors_bytes;

std::string fault(const std::vector<std::uint8_t>& bytes) {
  return testing::message_of<DataError>([&] { parse_safetensors(bytes, "FILE"); });
}

std::string fault(const std::string& header, std::size_t data_bytes = 0) {
  return fault(safetensors_bytes(header, data_bytes));
}

/// Makes the header of one tensor.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

TEST(Safetensors, GivesNamesTypesShapesAndBytesInTheHeadersOrder) {
  const auto bytes =
      safetensors_bytes(R"({"z":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},)"
                        R"("__metadata__":{"format":"pt","k":""},)"
                        R"("a":{"data_offsets":[0,4],"shape":[1,1],"dtype":"F32"}}   )",
          6);
  const TensorFile file = parse_safetensors(bytes, "FILE");
  ASSERT_EQ(file.entries().size(), 2U);
  EXPECT_EQ(file.entries()[0].name, "z");
  EXPECT_EQ(file.entries()[0].type, ElementType::kUint8);
  EXPECT_THAT(file.entries()[0].bytes, ElementsAre(5, 6));
  EXPECT_THAT(file.find("a")->shape, ElementsAre(1, 1));
  EXPECT_THAT(file.find("a")->bytes, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(file.find("b"), nullptr);
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt"), Pair("k", "")));
}

TEST(Safetensors, ReadsWhatPythonWrote) {
  const TensorFile file = read_safetensors(testing::python_file("types.safetensors"));
  const auto expected = testing::expected_tensors("types.safetensors");
  EXPECT_EQ(file.entries().size(), expected.size() + 1);
  for (const auto& tensor : expected) {
    const TensorEntry* entry = file.find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    EXPECT_EQ(entry->type, tensor.type) << tensor.name;
    EXPECT_EQ(entry->shape, tensor.shape) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(entry->bytes, tensor.bytes)) << tensor.name;
  }
  EXPECT_NE(file.find("a \"name\"\n\x1f é"), nullptr);
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt"), Pair("note", "é")));
}

TEST(Safetensors, ReadsScalarsEmptyTensorsAndFilesWithoutAny) {
  const TensorFile empty = parse_safetensors(safetensors_bytes("{}"), "FILE");
  EXPECT_TRUE(empty.entries().empty());
  const auto scalar = safetensors_bytes(one(R"("I64")", "[]", "[0,8]"), 8);
  EXPECT_EQ(parse_safetensors(scalar, "FILE").find("a")->bytes.size(), 8U);
  const auto nothing = safetensors_bytes(one(R"("I64")", "[3,0,5]", "[0,0]"));
  EXPECT_THAT(parse_safetensors(nothing, "FILE").find("a")->shape, ElementsAre(3, 0, 5));
}

TEST(Safetensors, RefusesLengthsThatLie) {
  EXPECT_EQ(fault(std::vector<std::uint8_t>{}),
      "FILE: offset 0: the file ends within the 8 bytes of its header's length");
  EXPECT_THAT(fault(std::vector<std::uint8_t>{2, 0, 0, 0, 0, 0, 0}),
      HasSubstr("FILE: offset 7: the file ends within"));
  EXPECT_EQ(fault(""), "FILE: offset 8: the header does not begin with {");
  const auto with_length = [](std::uint64_t length) {
    std::vector<std::uint8_t> bytes;
    append_little_endian(bytes, length, 8);
    bytes.insert(bytes.end(), {'{', '}', ' ', ' '});
    return bytes;
  };
  EXPECT_EQ(fault(with_length(7)),
      "FILE: offset 0: a header of 7 bytes in a file of 12: it was cut, or is not a safetensors "
      "file");
  EXPECT_THAT(fault(with_length(100'000'000)), HasSubstr("in a file of 12: it was cut"));
  EXPECT_EQ(fault(with_length(100'000'001)),
      "FILE: offset 0: a header of 100000001 bytes; the format allows 100000000");
  for (const std::uint64_t length : {1ULL << 63, ~0ULL, ~0ULL - 7}) {
    EXPECT_THAT(fault(with_length(length)), HasSubstr("the format allows 100000000")) << length;
  }
}

TEST(Safetensors, RefusesWhatIsNotJson) {
  EXPECT_EQ(fault(" {}"), "FILE: offset 8: the header does not begin with {");
  EXPECT_EQ(fault("[]"), "FILE: offset 8: the header does not begin with {");
  EXPECT_EQ(fault("{]}"), "FILE: offset 9: the header is not JSON in UTF-8");
  EXPECT_EQ(fault("{'a':1}"), "FILE: offset 9: the header is not JSON in UTF-8");
  EXPECT_THAT(fault("{}{}"), HasSubstr("is not JSON"));
  EXPECT_THAT(fault("{\"a\xff\":{}}"), HasSubstr("FILE: offset 11: the header is not JSON"));
  EXPECT_THAT(fault("{\"a\xed\xa0\x80\":{}}"), HasSubstr("is not JSON in UTF-8"));
  EXPECT_THAT(fault(one("NaN", "[1]", "[0,4]"), 4), HasSubstr("is not JSON"));
  EXPECT_EQ(fault("{}\n"), "FILE: offset 10: the header does not end with } and blanks");
  EXPECT_EQ(
      fault(std::string("{}\0", 3)), "FILE: offset 10: the header does not end with } and blanks");
}

TEST(Safetensors, RefusesKeysThatComeTwice) {
  const std::string empty = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(fault(R"({"a":)" + empty + R"(,"a":)" + empty + "}"),
      "FILE: offset 8: header at \"a\": the key \"a\" comes twice");
  EXPECT_THAT(fault(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
      HasSubstr("at \"a\": the key \"dtype\" comes twice"));
  EXPECT_THAT(
      fault(R"({"__metadata__":{"k":"1","k":"1"}})"), HasSubstr("the key \"k\" comes twice"));
  EXPECT_THAT(fault(R"({"__metadata__":{},"__metadata__":{}})"),
      HasSubstr("the key \"__metadata__\" comes twice"));
}

TEST(Safetensors, RefusesNestingWithoutBelievingIt) {
  EXPECT_THAT(
      fault(R"({"a":)" + std::string(1'000'000, '[') + "}"), HasSubstr("a list where none"));
  EXPECT_THAT(fault(one(R"("U8")", "[[1]]", "[0,1]"), 1), HasSubstr("a list within a list"));
  EXPECT_THAT(fault(one(R"({"x":1})", "[1]", "[0,1]"), 1), HasSubstr("an object where none"));
  EXPECT_THAT(fault(R"({"__metadata__":{"k":{}}})"), HasSubstr("an object where none belongs"));
}

TEST(Safetensors, RefusesValuesOfAnotherKind) {
  EXPECT_THAT(fault(R"({"a":5})"), HasSubstr("at \"a\": a number where none belongs"));
  EXPECT_THAT(fault(R"({"a":"x"})"), HasSubstr("a text where none belongs"));
  EXPECT_THAT(fault(R"({"a":null})"), HasSubstr("null where a value belongs"));
  EXPECT_THAT(fault(R"({"a":true})"), HasSubstr("a truth value where none belongs"));
  EXPECT_THAT(fault(R"({"__metadata__":{"k":1}})"), HasSubstr("a number where none belongs"));
  EXPECT_THAT(fault(R"({"__metadata__":{"k":["x"]}})"), HasSubstr("a list where none belongs"));
  EXPECT_THAT(fault(R"({"__metadata__":"x"})"), HasSubstr("a text where none belongs"));
  EXPECT_THAT(fault(one("5", "[1]", "[0,4]"), 4), HasSubstr("a number where none belongs"));
  EXPECT_THAT(fault(one(R"("U8")", "1", "[0,1]"), 1), HasSubstr("a number where none belongs"));
  EXPECT_THAT(fault(one(R"("U8")", R"(["1"])", "[0,1]"), 1), HasSubstr("a text where none"));
}

TEST(Safetensors, RefusesUnknownTypesAndKeys) {
  EXPECT_EQ(fault(one(R"("F33")", "[1]", "[0,4]"), 4),
      "FILE: offset 8: header at \"a\": the type \"F33\" is not known here");
  for (const char* type : {"", "f32", "F4", "F6_E2M3"}) {
    EXPECT_THAT(fault(one('"' + std::string(type) + '"', "[1]", "[0,4]"), 4),
        HasSubstr("is not known here"));
  }
  EXPECT_THAT(fault(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":"y"}})"),
      HasSubstr("the key \"x\" is none of dtype, shape, data_offsets"));
  EXPECT_THAT(fault(R"({"a":{"dtype":"U8","shape":[0]}})"),
      HasSubstr("the key \"data_offsets\" is missing"));
  EXPECT_THAT(
      fault(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})"), HasSubstr("\"shape\" is missing"));
  EXPECT_THAT(
      fault(R"({"a":{"shape":[0],"data_offsets":[0,0]}})"), HasSubstr("\"dtype\" is missing"));
  EXPECT_THAT(fault(R"({"a":{}})"), HasSubstr("\"dtype\" is missing"));
}

TEST(Safetensors, RefusesShapesThatCannotBe) {
  EXPECT_THAT(fault(one(R"("U8")", "[-1]", "[0,1]"), 1), HasSubstr("the negative number -1"));
  EXPECT_THAT(fault(one(R"("U8")", "[1.5]", "[0,1]"), 1),
      HasSubstr("the number \"1.5\", which is not a whole number of 64 bits"));
  EXPECT_THAT(fault(one(R"("U8")", "[1e0]", "[0,1]"), 1), HasSubstr("not a whole number"));
  EXPECT_THAT(
      fault(one(R"("U8")", "[18446744073709551616]", "[0,1]"), 1), HasSubstr("not a whole number"));
  EXPECT_THAT(fault(one(R"("U8")", "[9223372036854775808]", "[0,1]"), 1),
      HasSubstr("a size of 9223372036854775808"));
  // 2^32 times 2^32 is 0 in 64 bits, 2^61 times 8 bytes too.
  for (const char* shape :
      {"[4294967296,4294967296]", "[2305843009213693952]", "[0,4294967296,4294967296]"}) {
    EXPECT_THAT(
        fault(one(R"("F64")", shape, "[0,0]")), HasSubstr("has more elements or dimensions"))
        << shape;
  }
  std::string ones = "[1";
  for (int i = 1; i < 65; ++i) ones += ",1";
  EXPECT_THAT(
      fault(one(R"("U8")", ones + "]", "[0,1]"), 1), HasSubstr("has more elements or dimensions"));
}

TEST(Safetensors, RefusesPlacesThatDoNotCoverTheData) {
  EXPECT_EQ(fault(one(R"("U8")", "[4]", "[4,0]"), 4),
      "FILE: offset 61: tensor \"a\" ends before it begins");
  EXPECT_THAT(
      fault(one(R"("U8")", "[4]", "[0,4]"), 3), HasSubstr("\"a\" ends behind the file's end"));
  EXPECT_THAT(
      fault(one(R"("U8")", "[4]", "[0,18446744073709551615]"), 4), HasSubstr("ends behind"));
  EXPECT_EQ(fault(one(R"("U8")", "[4]", "[0,4]"), 6),
      "FILE: offset 65: 2 bytes that belong to no tensor");
  EXPECT_THAT(fault(one(R"("U8")", "[3]", "[0,4]"), 4),
      HasSubstr("tensor \"a\", uint8 of shape (3): needs 3 bytes, not 4"));
  EXPECT_THAT(
      fault(one(R"("U8")", "[4]", "[0]"), 4), HasSubstr("data_offsets has 1 numbers, not 2"));
  EXPECT_THAT(fault(one(R"("U8")", "[4]", "[0,4,4]"), 4), HasSubstr("has 3 numbers, not 2"));
  EXPECT_THAT(fault("{}", 1), HasSubstr("FILE: offset 10: 1 bytes that belong to no tensor"));
  const auto bytes_of_two = [](const std::string& first, const std::string& second) {
    return safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + first +
                                 R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second +
                                 "}}",
        4);
  };
  const auto two = [&](const std::string& first, const std::string& second) {
    return fault(bytes_of_two(first, second));
  };
  EXPECT_THAT(two("[0,2]", "[1,3]"), HasSubstr("tensor \"b\" overlaps the one before"));
  EXPECT_THAT(two("[0,2]", "[0,2]"), HasSubstr("tensor \"b\" overlaps the one before"));
  EXPECT_THAT(two("[0,2]", "[3,5]"), HasSubstr("a hole before tensor \"b\""));
  EXPECT_THAT(two("[0,2]", "[2,1]"), HasSubstr("tensor \"b\" ends before it begins"));
  EXPECT_NO_THROW(parse_safetensors(bytes_of_two("[2,4]", "[0,2]"), "FILE"));
}

TEST(Safetensors, RefusesTruncationAtEveryByteAndTrailingBytes) {
  const auto whole = testing::file_bytes(testing::python_file("types.safetensors"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::uint8_t> cut(
        whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(fault(cut), HasSubstr("FILE: offset ")) << size;
  }
  auto more = whole;
  more.push_back(0);
  EXPECT_THAT(fault(more), HasSubstr("1 bytes that belong to no tensor"));
}

TEST(Safetensors, EscapesNamesInMessages) {
  EXPECT_THAT(
      fault(R"({"\u001b[31m":{}})"), HasSubstr("header at \"\\x1b[31m\": the key \"dtype\""));
}

TEST(Safetensors, KeepsTheFileInMemoryAsLongAsTheTensors) {
  const testing::TemporaryFolder directory;
  const auto path = directory.write("a", safetensors_bytes(one(R"("U8")", "[4]", "[0,4]"), 4));
  std::unique_ptr<TensorFile> part;
  {
    const TensorFile file = read_safetensors(path);
    part = std::make_unique<TensorFile>(file);
  }
  std::filesystem::remove(path);
  EXPECT_THAT(part->find("a")->bytes, ElementsAre(1, 2, 3, 4));
}

TEST(Safetensors, NamesTheFileThatItRefuses) {
  const testing::TemporaryFolder directory;
  const auto path = directory.write("empty.safetensors", {});
  EXPECT_THAT(testing::message_of<DataError>([&] { read_safetensors(path); }),
      HasSubstr(path.string() + ": offset 0: "));
  EXPECT_THROW(read_safetensors(directory.path()), DataError);
  EXPECT_THROW(read_safetensors(directory.path() / "none"), DataError);
}

}  // namespace
}  // namespace lockstep
