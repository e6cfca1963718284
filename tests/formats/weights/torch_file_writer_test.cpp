#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/weights/expected_tensors.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/torch_file.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class TorchFileWriter : public ::testing::Test {
 protected:
  testing::TemporaryFolder directory_;
  std::filesystem::path path_ = directory_.path() / "out.pt";
};

TEST_F(TorchFileWriter, WritesWhatItReads) {
  for (const char* name :
      {"types.pt", "views.pt", "nested.pt", "parameter.pt", "complex128.pt", "empty.pt"}) {
    const TensorFile original = tensors_of(read_torch_file(testing::python_file(name)));
    write_torch_file(path_, original.entries());
    const TensorFile again = tensors_of(read_torch_file(path_));
    ASSERT_EQ(again.entries().size(), original.entries().size());
    for (std::size_t i = 0; i < again.entries().size(); ++i) {
      const TensorEntry& left = again.entries()[i];
      const TensorEntry& right = original.entries()[i];
      EXPECT_EQ(left.name, right.name);
      EXPECT_EQ(left.type, right.type);
      EXPECT_EQ(left.shape, right.shape);
      EXPECT_TRUE(std::ranges::equal(left.bytes, right.bytes)) << left.name;
    }
  }
}

TEST_F(TorchFileWriter, L6WritesNothingThatIsNotReadAgain) {
  const auto refused = [&](const std::vector<TensorEntry>& entries) {
    const std::string message =
        testing::message_of<InvalidArgument>([&] { write_torch_file(path_, entries); });
    EXPECT_TRUE(directory_.names().empty()) << "not even a part";
    return message;
  };
  std::vector<TensorEntry> many(130'000, {"", ElementType::kUint8, {0}, {}});
  for (std::size_t i = 0; i < many.size(); ++i) many[i].name = std::to_string(i);
  EXPECT_THAT(refused(many), HasSubstr("130000 tensors need a data.pkl of "));
  EXPECT_THAT(refused(many), HasSubstr("no more than 16777216 are read again; write .safetensors"));
  // Short enough, but of more values than are read.
  many.resize(40'000);
  for (TensorEntry& entry : many) entry.shape.assign(60, 0);
  EXPECT_THAT(refused(many), HasSubstr("more than 4194304 values"));
  many.resize(1);
  many[0].name = "";
  EXPECT_THAT(refused(many), HasSubstr("a tensor has no name"));
}

TEST_F(TorchFileWriter, L6WhatItWritesAtItsLimitIsRead) {
  std::vector<TensorEntry> many(60'000, {"", ElementType::kUint8, {0}, {}});
  for (std::size_t i = 0; i < many.size(); ++i) many[i].name = concat("layer.", i, ".weight");
  write_torch_file(path_, many);
  const TensorFile again = tensors_of(read_torch_file(path_));
  EXPECT_EQ(again.entries().size(), many.size());
}

TEST_F(TorchFileWriter, LaysEveryPartAtAMultipleOf64AsPyTorchDoes) {
  const TensorFile original = tensors_of(read_torch_file(testing::python_file("types.pt")));
  write_torch_file(path_, original.entries());
  const auto bytes = testing::file_bytes(path_);
  const auto entries = read_zip(bytes, "FILE");
  EXPECT_EQ(entries.size(), original.entries().size() + 5);
  for (const ZipEntry& entry : entries) EXPECT_EQ(entry.offset % 64, 0U) << entry.name;
}

TEST_F(TorchFileWriter, NumbersOfEverySizeComeBack) {
  std::vector<TensorEntry> entries;
  const std::vector<std::uint8_t> zeros(70'000);
  for (const std::int64_t size : {0, 1, 255, 256, 65'535, 65'536}) {
    entries.push_back({std::to_string(size), ElementType::kUint8, {size},
        std::span(zeros).first(static_cast<std::size_t>(size))});
  }
  entries.push_back({"wide", ElementType::kUint8, {0, 1LL << 40, 1LL << 20}, {}});
  write_torch_file(path_, entries);
  const TensorFile again = tensors_of(read_torch_file(path_));
  for (const TensorEntry& entry : entries) EXPECT_EQ(again.find(entry.name)->shape, entry.shape);
}

TEST_F(TorchFileWriter, MoreFilesThanANarrowCountHolds) {
  std::vector<TensorEntry> entries;
  for (int i = 0; i < 70'000; ++i)
    entries.push_back({std::to_string(i), ElementType::kUint8, {0}, {}});
  write_torch_file(path_, entries);
  const TensorFile file = tensors_of(read_torch_file(path_));
  EXPECT_EQ(file.entries().size(), entries.size());
}

TEST_F(TorchFileWriter, RefusesEntriesThatLie) {
  const std::vector<std::uint8_t> bytes(4);
  const std::vector<TensorEntry> wrong{{"a", ElementType::kFloat32, {2}, bytes}};
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { write_torch_file(path_, wrong); }),
      HasSubstr("write_torch_file: tensor \"a\" has 4 bytes, which is not"));
  const TensorEntry twice{"a", ElementType::kFloat32, {1}, bytes};
  EXPECT_THROW(write_torch_file(path_, std::vector{twice, twice}), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace lockstep
