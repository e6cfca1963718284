#include "lockstep/formats/weights/safetensors.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/mutated.h"
#include "tests/formats/weights/expected_tensors.h"
#include "tests/formats/weights/mutation.h"
#include "tests/formats/weights/safetensors_reference.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/weight_file.h"

namespace lockstep {
namespace {

using testing::Bytes;
using testing::Dice;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Pair;
using testing::ReferenceTensor;
using testing::safetensors_bytes;

std::string fault(const Bytes& bytes) {
  return testing::message_of<DataError>([&] { parse_safetensors(bytes, "FILE"); });
}

std::string fault(const std::string& header, std::size_t data_bytes = 0) {
  return fault(safetensors_bytes(header, data_bytes));
}

/// A header with so many bytes behind it, and what is said of it; with FILE it is all that is said.
struct Fault {
  std::string header;
  std::size_t data_bytes;
  std::string reason;
};

void expect_faults(const std::vector<Fault>& faults) {
  for (const auto& [header, data_bytes, reason] : faults) {
    const std::string message = fault(header, data_bytes);
    EXPECT_THAT(message, HasSubstr(reason)) << header.substr(0, 1000);
    if (reason.starts_with("FILE")) EXPECT_EQ(message, reason);
  }
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
  EXPECT_EQ(
      fault(Bytes{}), "FILE: offset 0: the file ends within the 8 bytes of its header's length");
  EXPECT_THAT(fault(Bytes{2, 0, 0, 0, 0, 0, 0}), HasSubstr("FILE: offset 7: the file ends within"));
  EXPECT_EQ(fault(""), "FILE: offset 8: the header does not begin with {");
  const auto with_length = [](std::uint64_t length) {
    Bytes bytes;
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
  const std::string begin = "FILE: offset 8: the header does not begin with {";
  const std::string end = ": the header does not end with } and blanks";
  expect_faults({{" {}", 0, begin}, {"[]", 0, begin}, {"{}\n", 0, "FILE: offset 10" + end},
      {std::string("{}\0", 3), 0, "FILE: offset 10" + end},
      {"{]}", 0, "FILE: offset 9: the header is not JSON in UTF-8"},
      {"{'a':1}", 0, "FILE: offset 9: the header is not JSON in UTF-8"}, {"{}{}", 0, "is not JSON"},
      {"{\"a\xff\":{}}", 0, "FILE: offset 11: the header is not JSON in UTF-8"},
      {"{\"a\xed\xa0\x80\":{}}", 0, "is not JSON in UTF-8"},
      {one("NaN", "[1]", "[0,4]"), 4, "is not JSON"}});
}

TEST(Safetensors, RefusesKeysThatComeTwice) {
  const std::string empty = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  expect_faults({{R"({"a":)" + empty + R"(,"a":)" + empty + "}", 0,
                     R"(FILE: offset 8: header at "a": the key "a" comes twice)"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0,
          R"(at "a": the key "dtype" comes twice)"},
      {R"({"__metadata__":{"k":"1","k":"1"}})", 0, R"(the key "k" comes twice)"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, R"(the key "__metadata__" comes twice)"}});
}

TEST(Safetensors, RefusesValuesOfAnotherKindAndNestingWithoutBelievingIt) {
  expect_faults({{R"({"a":)" + std::string(1'000'000, '[') + "}", 0, "a list where none"},
      {one(R"("U8")", "[[1]]", "[0,1]"), 1, "a list within a list"},
      {one(R"({"x":1})", "[1]", "[0,1]"), 1, "an object where none"},
      {R"({"__metadata__":{"k":{}}})", 0, "an object where none belongs"},
      {R"({"a":5})", 0, R"(at "a": a number where none belongs)"},
      {R"({"a":"x"})", 0, "a text where none belongs"},
      {R"({"a":null})", 0, "null where a value belongs"},
      {R"({"a":true})", 0, "a truth value where none belongs"},
      {R"({"__metadata__":{"k":1}})", 0, "a number where none belongs"},
      {R"({"__metadata__":{"k":["x"]}})", 0, "a list where none belongs"},
      {R"({"__metadata__":"x"})", 0, "a text where none belongs"},
      {one("5", "[1]", "[0,4]"), 4, "a number where none belongs"},
      {one(R"("U8")", "1", "[0,1]"), 1, "a number where none belongs"},
      {one(R"("U8")", R"(["1"])", "[0,1]"), 1, "a text where none"}});
}

TEST(Safetensors, RefusesUnknownTypesAndKeys) {
  expect_faults({{one(R"("F33")", "[1]", "[0,4]"), 4,
                     R"(FILE: offset 8: header at "a": the type "F33" is not known here)"},
      {one(R"("")", "[1]", "[0,4]"), 4, "is not known here"},
      {one(R"("f32")", "[1]", "[0,4]"), 4, "is not known here"},
      {one(R"("F4")", "[1]", "[0,4]"), 4, "is not known here"},
      {one(R"("F6_E2M3")", "[1]", "[0,4]"), 4, "is not known here"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":"y"}})", 0,
          R"(the key "x" is none of dtype, shape, data_offsets)"},
      {R"({"a":{"dtype":"U8","shape":[0]}})", 0, R"(the key "data_offsets" is missing)"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0, R"("shape" is missing)"},
      {R"({"a":{"shape":[0],"data_offsets":[0,0]}})", 0, R"("dtype" is missing)"},
      {R"({"\u001b[31m":{}})", 0, R"(header at "\x1b[31m": the key "dtype" is missing)"}});
}

TEST(Safetensors, RefusesShapesThatCannotBe) {
  std::string ones = "[1";
  for (int i = 1; i < 65; ++i) ones += ",1";
  const std::string too_many = "has more elements or dimensions";
  expect_faults({{one(R"("U8")", "[-1]", "[0,1]"), 1, "the negative number -1"},
      {one(R"("U8")", "[1.5]", "[0,1]"), 1,
          R"(the number "1.5", which is not a whole number of 64 bits)"},
      {one(R"("U8")", "[1e0]", "[0,1]"), 1, "not a whole number"},
      {one(R"("U8")", "[18446744073709551616]", "[0,1]"), 1, "not a whole number"},
      {one(R"("U8")", "[9223372036854775808]", "[0,1]"), 1, "a size of 9223372036854775808"},
      // 2^32 times 2^32 is 0 in 64 bits, 2^61 times 8 bytes too.
      {one(R"("F64")", "[4294967296,4294967296]", "[0,0]"), 0, too_many},
      {one(R"("F64")", "[2305843009213693952]", "[0,0]"), 0, too_many},
      {one(R"("F64")", "[0,4294967296,4294967296]", "[0,0]"), 0, too_many},
      {one(R"("U8")", ones + "]", "[0,1]"), 1, too_many}});
}

TEST(Safetensors, RefusesPlacesThatDoNotCoverTheData) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second + "}}";
  };
  expect_faults(
      {{one(R"("U8")", "[4]", "[4,0]"), 4, R"(FILE: offset 61: tensor "a" ends before it begins)"},
          {one(R"("U8")", "[4]", "[0,4]"), 3, R"("a" ends behind the file's end)"},
          {one(R"("U8")", "[4]", "[0,18446744073709551615]"), 4, "ends behind"},
          {one(R"("U8")", "[4]", "[0,4]"), 6, "FILE: offset 65: 2 bytes that belong to no tensor"},
          {one(R"("U8")", "[3]", "[0,4]"), 4,
              R"(tensor "a", uint8 of shape (3): needs 3 bytes, not 4)"},
          {one(R"("U8")", "[4]", "[0]"), 4, "data_offsets has 1 numbers, not 2"},
          {one(R"("U8")", "[4]", "[0,4,4]"), 4, "has 3 numbers, not 2"},
          {"{}", 1, "FILE: offset 10: 1 bytes that belong to no tensor"},
          {two("[0,2]", "[1,3]"), 4, R"(tensor "b" overlaps the one before)"},
          {two("[0,2]", "[0,2]"), 4, R"(tensor "b" overlaps the one before)"},
          {two("[0,2]", "[3,5]"), 4, R"(a hole before tensor "b")"},
          {two("[0,2]", "[2,1]"), 4, R"(tensor "b" ends before it begins)"}});
  EXPECT_NO_THROW(parse_safetensors(safetensors_bytes(two("[2,4]", "[0,2]"), 4), "FILE"));
}

TEST(Safetensors, RefusesTruncationAtEveryByteAndTrailingBytes) {
  const auto whole = testing::file_bytes(testing::python_file("types.safetensors"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(fault(testing::cut(whole, size)), HasSubstr("FILE: offset ")) << size;
  }
  auto more = whole;
  more.push_back(0);
  EXPECT_THAT(fault(more), HasSubstr("1 bytes that belong to no tensor"));
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

const Bytes kBytes{1, 2, 3, 4, 5, 6, 7, 8};

TensorEntry entry(
    const std::string& name, ElementType type, std::vector<std::int64_t> shape, std::size_t bytes) {
  return {name, type, std::move(shape), std::span(kBytes).first(bytes)};
}

class SafetensorsWriter : public ::testing::Test {
 protected:
  testing::TemporaryFolder directory_;
  std::filesystem::path path_ = directory_.path() / "out.safetensors";
};

TEST_F(SafetensorsWriter, PutsTheWidestFirstAndKeepsTheOrderOfTheHeader) {
  write_weights(path_,
      std::vector{entry("b", ElementType::kUint8, {3}, 3), entry("z", ElementType::kInt64, {}, 8),
          entry("a", ElementType::kUint8, {1, 1}, 1)},
      {{"k", "\"\n"}});
  const auto bytes = testing::file_bytes(path_);
  const std::string text(bytes.begin() + 8, bytes.end());
  EXPECT_THAT(text,
      ::testing::StartsWith(
          R"({"__metadata__":{"k":"\"\n"},"b":{"dtype":"U8","shape":[3],"data_offsets":[9,12]},)"
          R"("z":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
          R"("a":{"dtype":"U8","shape":[1,1],"data_offsets":[8,9]}} )"));
  EXPECT_EQ((bytes.size() - 12) % 8, 0U);
  EXPECT_THAT(text, ::testing::EndsWith("\x01\x02\x03\x04\x05\x06\x07\x08\x01\x01\x02\x03"));
  const TensorFile again = read_safetensors(path_);
  EXPECT_EQ(again.entries()[0].name, "b");
  EXPECT_EQ(again.metadata().at("k"), "\"\n");
}

TEST_F(SafetensorsWriter, GivesPythonsFileByteForByte) {
  const auto original = testing::python_file("types.safetensors");
  const TensorFile file = read_safetensors(original);
  write_weights(path_, file.entries(), {file.metadata().begin(), file.metadata().end()});
  EXPECT_EQ(testing::file_bytes(path_), testing::file_bytes(original));
}

TEST_F(SafetensorsWriter, WritesWhatItReads) {
  write_weights(path_, {});
  const TensorFile none = read_safetensors(path_);
  EXPECT_TRUE(none.entries().empty());
  write_weights(path_, std::vector{entry("", ElementType::kUint8, {0}, 0)});
  const TensorFile one = read_safetensors(path_);
  EXPECT_EQ(one.entries().size(), 1U);
}

TEST_F(SafetensorsWriter, RefusesWhatTheFormatCannotHold) {
  const auto writing = [&](const TensorEntry& bad,
                           const std::map<std::string, std::string>& metadata = {}) {
    return message_of<InvalidArgument>([&] { write_weights(path_, std::vector{bad}, metadata); });
  };
  EXPECT_EQ(writing(entry("a", ElementType::kFloat32, {3}, 8)),
      "write_safetensors: tensor \"a\" has 8 bytes, which is not what float32 of shape (3) needs");
  EXPECT_THAT(
      writing(entry("a", ElementType::kUint8, {-1}, 1)), HasSubstr("cannot have the shape (-1)"));
  EXPECT_THAT(writing(entry("a", ElementType::kComplex128, {0}, 0)),
      HasSubstr("tensor \"a\" is complex128, which the format does not have"));
  EXPECT_THAT(
      writing(entry("\xff", ElementType::kUint8, {1}, 1)), HasSubstr("\"\\xff\" is not UTF-8"));
  EXPECT_THAT(writing(entry("__metadata__", ElementType::kUint8, {1}, 1)),
      HasSubstr("cannot be named __metadata__"));
  EXPECT_THAT(writing(entry("a", ElementType::kUint8, {1}, 1), {{"k", "\xff"}}),
      HasSubstr("metadata \"k\" is not UTF-8"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
    const auto same = entry("a", ElementType::kUint8, {1}, 1);
    write_weights(path_, std::vector{same, same});
  }),
      HasSubstr("two tensors have the name \"a\""));
  // JSON needs six bytes for each of these.
  std::string long_name;
  long_name.resize(17'000'000, '\1');
  EXPECT_THAT(writing(entry(long_name, ElementType::kUint8, {1}, 1)),
      HasSubstr("the format allows 100000000"));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

constexpr int kMutations = 5'000;
constexpr std::size_t kMostAllocated = 64 * 1024;

/// Returns what a file holds as the reference reader would; nothing if it is refused.
std::optional<std::map<std::string, ReferenceTensor>> contents(const Bytes& bytes) {
  return testing::read_within(kMostAllocated, [&] {
    std::map<std::string, ReferenceTensor> tensors;
    const TensorFile file = parse_safetensors(bytes, "FILE");
    for (const TensorEntry& entry : file.entries()) {
      tensors.emplace(entry.name, ReferenceTensor{std::string(*safetensors_name(entry.type)),
                                      entry.shape, {entry.bytes.begin(), entry.bytes.end()}});
    }
    return tensors;
  });
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
