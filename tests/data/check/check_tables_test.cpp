#include "lockstep/data/check/check_tables.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/tensor_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

using lockstep::testing::counted_floats;
using lockstep::testing::integers;
using lockstep::testing::message_of;
using lockstep::testing::write_tensors;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(CheckTables, TellsTheRangesOfAllTensors) {
  const lockstep::testing::TemporaryFolder folder;
  write_tensors(folder.path() / "train.safetensors",
      {counted_floats("x", {3, 2}), integers("y", {0, -100, 2})});
  write_tensors(
      folder.path() / "test.safetensors", {counted_floats("x", {1, 2}, 9), integers("y", {3})});
  const SetReport report = check_set("tensors", folder.path());
  EXPECT_THAT(report.bad, IsEmpty());
  ASSERT_THAT(report.parts, SizeIs(2));
  const PartReport& train = report.parts[0];
  EXPECT_EQ(train.images, 3);
  EXPECT_THAT(train.per_class, ElementsAre(1, 0, 1, 0));
  ASSERT_THAT(train.tensors, SizeIs(2));
  EXPECT_EQ(train.tensors[0].name, "x");
  EXPECT_FALSE(train.tensors[0].is_target);
  EXPECT_EQ(train.tensors[0].type, "float32");
  EXPECT_THAT(train.tensors[0].sizes, ElementsAre(2));
  EXPECT_EQ(train.tensors[0].least, 0);
  EXPECT_EQ(train.tensors[0].mean, 2.5);
  EXPECT_EQ(train.tensors[0].most, 5);
  EXPECT_TRUE(train.tensors[1].is_target);
  EXPECT_EQ(report.parts[1].name, "test");
  EXPECT_THAT(report.parts[1].per_class, ElementsAre(0, 0, 0, 1));
}

TEST(CheckTables, ReadsWhatTrainingIsToldTo) {
  const lockstep::testing::TemporaryFolder folder;
  write_tensors(folder.path() / "a.safetensors",
      {counted_floats("x", {2, 2}), counted_floats("price", {2}), integers("id", {5, 6})});
  const CheckOptions options{.choice = {.inputs = {"x"}, .targets = {"price"}}};
  const SetReport report = check_set("tensors", folder.path(), options);
  ASSERT_THAT(report.parts.at(0).tensors, SizeIs(2));
  EXPECT_EQ(report.parts[0].tensors[1].name, "price");
  EXPECT_TRUE(report.parts[0].tensors[1].is_target);
  EXPECT_THAT(message_of<InvalidArgument>([&] { check_set("text", folder.path(), options); }),
      HasSubstr("--inputs and --targets are for tensors:PATH; text has its own"));
}

TEST(CheckTables, NamesTheFirstSampleThatIsNoNumber) {
  const lockstep::testing::TemporaryFolder folder;
  const auto path = write_tensors(
      folder.path() / "a.safetensors", {{"x", ElementType::kFloat32, {4},
                                           lockstep::testing::bytes_of_numbers<float>(
                                               {4, std::nanf(""), std::nanf(""), HUGE_VALF})}});
  const SetReport report = check_set("tensors", path);
  ASSERT_THAT(report.bad, SizeIs(1));
  EXPECT_EQ(report.bad[0].name, path + ", sample 1");
  EXPECT_THAT(
      report.bad[0].reason, HasSubstr("x has 3 numbers in this part that are NaN or infinite"));
  EXPECT_EQ(report.parts.at(0).tensors.at(0).nonfinite, 3);
  EXPECT_EQ(report.parts.at(0).tensors.at(0).most, 4);
  EXPECT_THAT(report.parts.at(0).per_class, IsEmpty());
}

TEST(CheckTables, CountsTokens) {
  const lockstep::testing::TemporaryFolder folder;
  const auto path =
      folder.write("train.bin", lockstep::testing::bytes_of_numbers<std::uint16_t>({7, 50256, 1}));
  const SetReport report = check_set("tokens", path);
  ASSERT_THAT(report.parts, SizeIs(1));
  EXPECT_EQ(report.parts[0].images, 3);
  EXPECT_EQ(report.parts[0].tensors.at(0).name, "tokens");
  EXPECT_EQ(report.parts[0].tensors.at(0).most, 50256);
}

TEST(CheckTables, ReportsWhatCannotBeOpened) {
  const lockstep::testing::TemporaryFolder folder;
  const auto path = folder.write("a.safetensors", std::vector<std::uint8_t>{1, 2, 3});
  const SetReport report = check_set("tensors", path);
  ASSERT_THAT(report.bad, SizeIs(1));
  EXPECT_THAT(report.bad[0].reason, HasSubstr("a.safetensors"));
  EXPECT_THAT(report.parts, IsEmpty());
}

}  // namespace
}  // namespace lockstep::data
