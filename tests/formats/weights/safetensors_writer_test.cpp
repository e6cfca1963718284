#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/weights/expected_tensors.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/safetensors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

const std::vector<std::uint8_t> kBytes{1, 2, 3, 4, 5, 6, 7, 8};

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
  write_safetensors(path_,
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
  write_safetensors(path_, file.entries(), {file.metadata().begin(), file.metadata().end()});
  EXPECT_EQ(testing::file_bytes(path_), testing::file_bytes(original));
}

TEST_F(SafetensorsWriter, WritesWhatItReads) {
  write_safetensors(path_, {});
  const TensorFile none = read_safetensors(path_);
  EXPECT_TRUE(none.entries().empty());
  write_safetensors(path_, std::vector{entry("", ElementType::kUint8, {0}, 0)});
  const TensorFile one = read_safetensors(path_);
  EXPECT_EQ(one.entries().size(), 1U);
}

TEST_F(SafetensorsWriter, RefusesWhatTheFormatCannotHold) {
  const auto writing = [&](const TensorEntry& bad,
                           const std::map<std::string, std::string>& metadata = {}) {
    return message_of<InvalidArgument>(
        [&] { write_safetensors(path_, std::vector{bad}, metadata); });
  };
  EXPECT_EQ(writing(entry("a", ElementType::kFloat32, {3}, 8)),
      "write_safetensors: tensor \"a\" has 8 bytes, which is not what float32 of shape (3) needs");
  EXPECT_THAT(writing(entry("a", ElementType::kUint8, {-1}, 1)), HasSubstr("is not what uint8"));
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
    write_safetensors(path_, std::vector{same, same});
  }),
      HasSubstr("two tensors have the name \"a\""));
  // JSON needs six bytes for each of these.
  std::string long_name;
  long_name.resize(17'000'000, '\1');
  EXPECT_THAT(writing(entry(long_name, ElementType::kUint8, {1}, 1)),
      HasSubstr("the format allows 100000000"));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

}  // namespace
}  // namespace lockstep
