#include "lockstep/data/set_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

using lockstep::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void expect_part(const NamedPart& named, std::optional<SetPart> part, const std::string& rest) {
  EXPECT_EQ(named.part, part) << rest;
  EXPECT_EQ(named.rest, rest);
}

TEST(PartOfFile, IsAnyWordOfItsName) {
  expect_part(part_of_file("train"), SetPart::kTrain, "");
  expect_part(part_of_file("X_train"), SetPart::kTrain, "X");
  expect_part(part_of_file("Test-images"), SetPart::kTest, "images");
  expect_part(part_of_file("fineweb_val_000001"), SetPart::kValidation, "fineweb_000001");
  expect_part(part_of_file("shard.validation"), SetPart::kValidation, "shard");
  expect_part(part_of_file("valid"), SetPart::kValidation, "");
  expect_part(part_of_file("trained"), std::nullopt, "trained");
  expect_part(part_of_file("testing_set"), std::nullopt, "testing_set");
  expect_part(part_of_file(""), std::nullopt, "");
}

TEST(PartOfTensor, IsTheFirstOrTheLastWord) {
  expect_part(part_of_tensor("x_train"), SetPart::kTrain, "x");
  expect_part(part_of_tensor("val_images"), SetPart::kValidation, "images");
  expect_part(part_of_tensor("x_valid"), SetPart::kValidation, "x");
  expect_part(part_of_tensor("valid_mask"), std::nullopt, "valid_mask");
  expect_part(part_of_tensor("is_test_image"), std::nullopt, "is_test_image");
}

TEST(PartOfFile, RefusesTwo) {
  EXPECT_EQ(message_of<DataError>([] { part_of_file("train_test"); }),
      "the name \"train_test\" says two parts, train and test; rename it");
  expect_part(part_of_file("train_0_train"), SetPart::kTrain, "0_train");
}

std::vector<std::string> names_in(const SetFiles& files) {
  std::vector<std::string> names;
  for (const SetFile& file : files.files) names.push_back(file.path.filename());
  return names;
}

TEST(ListSetFiles, TakesThoseOfAFolderByNameAndSaysWhatItLeaves) {
  const lockstep::testing::TemporaryFolder folder;
  for (const char* const name : {"b.npy", "a.NPY", "meta.pkl", ".hidden.npy"})
    folder.write(name, std::vector<std::uint8_t>{1});
  std::filesystem::create_directory(folder.path() / "old.npy");
  const SetFiles files = list_set_files("tensors", folder.str(), {".npy"});
  EXPECT_THAT(names_in(files), ElementsAre("a.NPY", "b.npy"));
  EXPECT_EQ(files.files[0].ending, ".npy");
  EXPECT_EQ(
      files.remark, "of " + folder.str() + " these are not read, by their endings: 1 .pkl, 1 /");
}

TEST(ListSetFiles, KeepsTheOrderOfThosePathsThatAreNamed) {
  const lockstep::testing::TemporaryFolder folder;
  const std::vector<std::uint8_t> byte{1};
  const std::string second = folder.write("b.npy", byte), first = folder.write("a.txt", byte);
  const SetFiles files = list_set_files("tensors", second + "," + first, {".npy"});
  EXPECT_THAT(names_in(files), ElementsAre("b.npy", "a.txt"));
  EXPECT_EQ(files.remark, "");
}

TEST(ListSetFiles, RefusesWhatIsNotThere) {
  const lockstep::testing::TemporaryFolder folder;
  EXPECT_THAT(message_of<InvalidArgument>([] { list_set_files("text", "", {".txt"}); }),
      HasSubstr("text: name files or a folder: text:PATH"));
  EXPECT_THAT(message_of<DataError>([] { list_set_files("text", "/no/file", {".txt"}); }),
      HasSubstr("text: there is no /no/file"));
  EXPECT_THAT(message_of<DataError>([&] { list_set_files("text", folder.str(), {".txt"}); }),
      HasSubstr("no file there ends with one of .txt"));
  const auto both = folder.write("val_test.txt", std::vector<std::uint8_t>{1});
  EXPECT_THAT(message_of<DataError>([&] { list_set_files("text", folder.str(), {".txt"}); }),
      HasSubstr(both.string() + ": the name \"val_test\" says two parts"));
}

}  // namespace
}  // namespace lockstep::data
