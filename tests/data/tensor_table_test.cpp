#include "lockstep/data/tensor_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/tensor_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/tensor_numbers.h"

namespace lockstep::data {
namespace {

using lockstep::testing::counted_floats;
using lockstep::testing::integers;
using lockstep::testing::message_of;
using lockstep::testing::TemporaryFolder;
using lockstep::testing::write_tensors;
using lockstep::testing::WrittenTensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> names_of(const std::vector<TensorColumn>& columns) {
  std::vector<std::string> names;
  for (const TensorColumn& column : columns) names.push_back(column.name);
  return names;
}

std::vector<double> row(const TensorColumn& column, std::int64_t index) {
  std::vector<double> numbers(static_cast<std::size_t>(column.elements()));
  copy_numbers<double>(column.type, row_of(column, index).bytes, numbers);
  return numbers;
}

std::string fault(const std::string& paths, const TensorChoice& choice = {}) {
  return message_of<DataError>([&] { open_tensors(paths, choice); });
}

TEST(OpenTensors, TellsInputsFromTargetsByTheirNames) {
  const TemporaryFolder folder;
  const auto path = write_tensors(folder.path() / "a.safetensors",
      {counted_floats("x", {2, 3}), integers("y", {1, 0}), counted_floats("mask", {2}),
          counted_floats("target.boxes", {2, 4})});
  const TensorTables tables = open_tensors(path);
  EXPECT_THAT(names_of(tables.train.inputs), ElementsAre("x", "mask"));
  EXPECT_THAT(names_of(tables.train.targets), ElementsAre("y", "target.boxes"));
  EXPECT_EQ(tables.train.rows(), 2);
  EXPECT_THAT(tables.train.inputs[0].sizes, ElementsAre(3));
  EXPECT_THAT(row(tables.train.inputs[0], 1), ElementsAre(3, 4, 5));
  EXPECT_THAT(tables.remarks, IsEmpty());
  EXPECT_FALSE(tables.validation || tables.test);
}

TEST(OpenTensors, TakesInputsAndTargetsThatAreNamed) {
  const TemporaryFolder folder;
  const auto path = write_tensors(folder.path() / "a.safetensors",
      {counted_floats("a", {2}), counted_floats("b", {2}), counted_floats("y", {2})});
  const TensorTables tables = open_tensors(path, {.inputs = {"y", "a"}, .targets = {"b"}});
  EXPECT_THAT(names_of(tables.train.inputs), ElementsAre("y", "a"));
  EXPECT_THAT(names_of(tables.train.targets), ElementsAre("b"));
  const TensorTables other = open_tensors(path, {.inputs = {"b"}});
  EXPECT_THAT(names_of(other.train.targets), ElementsAre("y"));
  EXPECT_THAT(other.remarks, ElementsAre("neither inputs nor targets, and not read: a"));
  EXPECT_THAT(names_of(open_tensors(path, {.targets = {"b"}}).train.inputs), ElementsAre("a", "y"));
  EXPECT_EQ(message_of<InvalidArgument>([&] { open_tensors(path, {.targets = {"z"}}); }),
      "tensors: --targets names \"z\", but the tensors are a, b, y");
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { open_tensors(path, {.inputs = {"a"}, .targets = {"a"}}); }),
      HasSubstr("\"a\" cannot be of both --inputs and --targets"));
  EXPECT_THAT(fault(path, {.targets = {"a", "b", "y"}}), HasSubstr("has targets alone"));
}

TEST(OpenTensors, JoinsFilesOfTheSameNamesInTheirOrder) {
  const TemporaryFolder folder;
  write_tensors(
      folder.path() / "s1.safetensors", {counted_floats("x", {2, 1}), integers("y", {1, 0})});
  write_tensors(folder.path() / "s2.safetensors", {counted_floats("x", {0, 1}), integers("y", {})});
  write_tensors(
      folder.path() / "s3.safetensors", {counted_floats("x", {1, 1}, 7), integers("y", {4})});
  const TensorTables tables = open_tensors(folder.str());
  const TensorColumn& x = tables.train.inputs.at(0);
  ASSERT_EQ(tables.train.rows(), 3);
  EXPECT_THAT(row(x, 0), ElementsAre(0));
  EXPECT_THAT(row(x, 1), ElementsAre(1));
  EXPECT_THAT(row(x, 2), ElementsAre(7));
  EXPECT_EQ(x.pieces.size(), 2U) << "empty files have no piece";
  EXPECT_EQ(tables.classes, 5);
}

TEST(OpenTensors, TakesFurtherColumnsFromFurtherFiles) {
  const TemporaryFolder folder;
  const auto x = write_tensors(folder.path() / "a.safetensors", {counted_floats("x", {2})});
  const auto y = write_tensors(folder.path() / "b.safetensors", {integers("y", {1, 0})});
  EXPECT_THAT(names_of(open_tensors(x + "," + y).train.targets), ElementsAre("y"));
}

TEST(OpenTensors, FindsPartsByTheNamesOfFilesOrTensors) {
  const TemporaryFolder folder;
  const auto all = write_tensors(folder.path() / "mnist.safetensors",
      {counted_floats("x_train", {3}), integers("y_train", {1, 0, 0}),
          counted_floats("x_test", {2}), integers("y_test", {5, 0})});
  TensorTables tables = open_tensors(all);
  EXPECT_EQ(tables.train.rows(), 3);
  EXPECT_THAT(names_of(tables.train.inputs), ElementsAre("x"));
  ASSERT_TRUE(tables.test);
  EXPECT_EQ(tables.test->rows(), 2);
  EXPECT_EQ(tables.classes, 6) << "of all parts";
  EXPECT_FALSE(tables.validation);
  const auto val = write_tensors(
      folder.path() / "val.safetensors", {counted_floats("x", {1}), integers("y", {9})});
  tables = open_tensors(all + "," + val);
  ASSERT_TRUE(tables.validation);
  EXPECT_EQ(tables.classes, 10);
}

TEST(OpenTensors, RefusesPartsThatDoNotFit) {
  const TemporaryFolder folder;
  const auto train = write_tensors(
      folder.path() / "train.safetensors", {counted_floats("x", {2, 3}), counted_floats("z", {2})});
  const auto path = folder.path() / "test.safetensors";
  write_tensors(path, {counted_floats("x", {2, 4}), counted_floats("z", {2})});
  EXPECT_EQ(fault(folder.str()),
      "tensors: a sample of \"x\" is float32 (3) in the part train, but float32 (4) in the part "
      "test");
  write_tensors(path, {counted_floats("x", {2, 3})});
  EXPECT_THAT(
      fault(folder.str()), HasSubstr("the part test has no samples of \"z\", which others have"));
  EXPECT_THAT(fault(path), HasSubstr("is to validate or test with, by its names"));
  write_tensors(path, {counted_floats("x_train", {2, 3})});
  EXPECT_THAT(fault(folder.str()),
      HasSubstr("its name says test, but that of its tensor \"x_train\" says train"));
}

TEST(OpenTensors, RefusesFilesAndNamesThatAreThereTwice) {
  const TemporaryFolder folder;
  const auto file = write_tensors(
      folder.path() / "a.safetensors", {counted_floats("x", {2}), integers("Y", {1, 0})});
  EXPECT_THAT(names_of(open_tensors(file).train.targets), ElementsAre("Y"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { open_tensors(folder.str() + "," + file); }),
      HasSubstr("is there twice"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
    open_tensors(file, {.inputs = {"x", "x"}});
  }),
      HasSubstr("--inputs names \"x\" twice"));
}

TEST(OpenTensors, RefusesFilesOfOtherTensorsThatMoveRowsApart) {
  const TemporaryFolder folder;
  write_tensors(folder.path() / "a.safetensors", {counted_floats("x", {2})});
  write_tensors(
      folder.path() / "b.safetensors", {counted_floats("x", {3}), counted_floats("y", {3})});
  write_tensors(folder.path() / "c.safetensors", {counted_floats("y", {2})});
  EXPECT_THAT(fault(folder.str()), HasSubstr("are not in step with those of its other tensors"));
}

TEST(OpenTensors, TakesClassesFromPartsThatHaveSome) {
  const TemporaryFolder folder;
  write_tensors(
      folder.path() / "train.safetensors", {counted_floats("x", {2}), integers("y", {6, 0})});
  const auto test = folder.path() / "test.safetensors";
  write_tensors(test, {counted_floats("x", {2}), integers("y", {-100, -100})});
  EXPECT_EQ(open_tensors(folder.str()).classes, 7);
  write_tensors(
      test, {counted_floats("x", {2}), counted_floats("mask", {2}), integers("y", {1, 1})});
  EXPECT_THAT(
      fault(folder.str()), HasSubstr("the part test has \"mask\", which the part train lacks"));
}

TEST(OpenTensors, RefusesColumnsThatAreNotInStep) {
  const TemporaryFolder folder;
  const auto one = folder.path() / "a.safetensors", other = folder.path() / "b.safetensors";
  write_tensors(one, {counted_floats("x", {2}), counted_floats("z", {3})});
  EXPECT_EQ(
      fault(one), one.string() + ": \"x\" has 2 samples, but \"z\" has 3; each must have as many");
  write_tensors(one, {counted_floats("x", {2})});
  write_tensors(other, {counted_floats("z", {3})});
  EXPECT_EQ(fault(folder.str()),
      "tensors: the part train has 2 samples of \"x\" and 3 of \"z\"; each must have as many");
  write_tensors(other, {counted_floats("x", {2, 1})});
  EXPECT_THAT(fault(folder.str()), HasSubstr("and cannot be joined to that of " + one.string()));
}

TEST(OpenTensors, RefusesWhatIsNoColumn) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  write_tensors(path, {counted_floats("x", {})});
  EXPECT_THAT(fault(path), HasSubstr("\"x\" has the shape (); the first size must count samples"));
  write_tensors(path, {counted_floats("x", {2, 0})});
  EXPECT_THAT(fault(path), HasSubstr("\"x\" has the shape (2, 0)"));
  write_tensors(path, {counted_floats("x", {0, 2})});
  EXPECT_THAT(fault(path), HasSubstr("the part train has no samples of \"x\""));
  write_tensors(path, {{"x", ElementType::kUint64, {1}, std::vector<std::uint8_t>(8)}});
  EXPECT_THAT(fault(path), HasSubstr("\"x\" is of uint64, which is not read; save it as"));
  const auto other = folder.write("a.csv", std::vector<std::uint8_t>{1});
  EXPECT_THAT(fault(other), HasSubstr("its ending says none of .safetensors, .npz, .npy"));
}

TEST(OpenTensors, SaysAsWhatATypeIsTaken) {
  const TemporaryFolder folder;
  const WrittenTensor wide{"x", ElementType::kFloat64, {1}, std::vector<std::uint8_t>(8)};
  const WrittenTensor pixels{"pixels", ElementType::kUint8, {1}, {7}};
  const WrittenTensor classes{"label", ElementType::kUint8, {1}, {7}};
  const WrittenTensor mask{"target.mask", ElementType::kBool, {1}, {1}};
  const auto path = write_tensors(folder.path() / "a.safetensors", {wide, pixels, classes, mask});
  const TensorTables tables = open_tensors(path);
  EXPECT_EQ(tables.train.inputs[0].taken_as, SampleType::kFloat);
  EXPECT_EQ(tables.train.inputs[1].taken_as, SampleType::kUint8);
  EXPECT_EQ(tables.train.targets[0].taken_as, SampleType::kInt64);
  EXPECT_EQ(tables.train.targets[1].taken_as, SampleType::kBool);
  EXPECT_THAT(tables.remarks, ElementsAre("\"x\" is float64 and is rounded to float32"));
}

TEST(OpenTensors, CountsClassesWhereTheOneTargetHasThem) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const auto classes_of = [&](const std::vector<WrittenTensor>& targets) {
    std::vector<WrittenTensor> all = targets;
    all.push_back(counted_floats("x", {2}));
    write_tensors(path, all);
    return open_tensors(path).classes;
  };
  EXPECT_EQ(classes_of({integers("y", {3, -100})}), 4);
  EXPECT_EQ(classes_of({integers("y", {3, -1})}), 0);
  EXPECT_THAT(open_tensors(path).remarks,
      ElementsAre(
          "\"y\" has the number -1, and so no classes, which begin at 0; what is not to count "
          "is -100"));
  EXPECT_EQ(classes_of({integers("y", {3, 1 << 20})}), 0) << "numbers";
  EXPECT_EQ(classes_of({integers("y", {3, 0}), integers("label.other", {1, 0})}), 0);
  EXPECT_EQ(classes_of({counted_floats("y", {2})}), 0);
  EXPECT_EQ(classes_of({{"y", ElementType::kUint8, {2, 1}, {1, 2}}}), 0);
  EXPECT_EQ(classes_of({}), 0);
}

std::vector<std::uint8_t> tokens(std::uint16_t first, std::uint16_t count) {
  std::vector<std::uint16_t> numbers;
  for (std::uint16_t i = 0; i < count; ++i)
    numbers.push_back(static_cast<std::uint16_t>(first + i));
  return lockstep::testing::bytes_of_numbers(numbers);
}

TEST(OpenSequences, CutsEachFileAndSaysWhatRemains) {
  const TemporaryFolder folder;
  folder.write("train_0.bin", tokens(0, 10));
  folder.write("train_1.bin", tokens(100, 7));
  folder.write("train_2.bin", tokens(200, 2));
  folder.write("val.bin", tokens(300, 4));
  const TensorTables tables = open_sequences(folder.str(), SequenceKind::kTokens, 3);
  const TensorTable& train = tables.train;
  ASSERT_EQ(train.rows(), 5);
  EXPECT_THAT(row(train.inputs[0], 2), ElementsAre(6, 7, 8));
  EXPECT_THAT(row(train.targets[0], 2), ElementsAre(7, 8, 9));
  EXPECT_THAT(row(train.inputs[0], 4), ElementsAre(103, 104, 105));
  EXPECT_THAT(row(train.targets[0], 4), ElementsAre(104, 105, 106));
  EXPECT_THAT(names_of(train.inputs), ElementsAre("input"));
  EXPECT_THAT(names_of(train.targets), ElementsAre("target"));
  ASSERT_TRUE(tables.validation);
  EXPECT_EQ(tables.validation->rows(), 1);
  EXPECT_THAT(tables.remarks,
      ElementsAre("a vocabulary of 304, as the largest token is 303",
          "2 of 19 tokens of the part train are the rest of files, fill no sequence of 3, "
          "and are not read"));
  EXPECT_EQ(tables.classes, 304);
}

// The largest of 200,000 tokens, which are read some at a time, comes last.
TEST(OpenSequences, TakeTheVocabularyFromAllTokensOrFromTheModel) {
  const TemporaryFolder folder;
  std::vector<std::uint32_t> numbers(200000, 7);
  numbers.back() = 70000;
  const auto path = folder.write("train.uint32.bin", lockstep::testing::bytes_of_numbers(numbers));
  const auto opened = [&](std::optional<std::int64_t> vocabulary) {
    return open_sequences(path, SequenceKind::kTokens, 3, vocabulary);
  };
  EXPECT_EQ(opened({}).classes, 70001);
  EXPECT_EQ(opened({}).train.targets[0].vocabulary, 70001);
  const TensorTables told = opened(100);
  EXPECT_EQ(told.classes, 100);
  EXPECT_EQ(told.train.inputs[0].vocabulary, 100);
  EXPECT_EQ(told.remarks.size(), 1U) << "of the rest alone";
}

TEST(OpenSequences, OfTextHaveTheClassesOfBytes) {
  const TemporaryFolder folder;
  const auto path = folder.write("input.md", std::vector<std::uint8_t>{'a', 'b', 0xff});
  const TensorTables tables = open_sequences(path, SequenceKind::kText, 2);
  EXPECT_EQ(tables.classes, 256);
  EXPECT_EQ(tables.train.inputs[0].taken_as, SampleType::kInt64);
  EXPECT_THAT(row(tables.train.targets[0], 0), ElementsAre('b', 0xff));
  const TensorTables told = open_sequences(path, SequenceKind::kText, 2, 100);
  EXPECT_EQ(told.classes, 100);
  EXPECT_EQ(told.train.targets[0].vocabulary, 100);
}

TEST(OpenSequences, TakeNoVocabularyFromATokenThatIsUnlikelyLarge) {
  const TemporaryFolder folder;
  const auto opened = [&](std::uint32_t token, std::optional<std::int64_t> vocabulary = {}) {
    const std::vector<std::uint32_t> numbers{1, token, 3, 4};
    const auto path =
        folder.write("train.uint32.bin", lockstep::testing::bytes_of_numbers(numbers));
    return open_sequences(path, SequenceKind::kTokens, 3, vocabulary).classes;
  };
  EXPECT_EQ(opened((1 << 24) - 1), 1 << 24);
  EXPECT_EQ(opened(1 << 24, 50257), 50257);
  EXPECT_THAT(message_of<DataError>([&] { opened(1 << 24); }),
      ::testing::EndsWith("train.uint32.bin: its largest token is 16777216, which is no likely "
                          "vocabulary's; give --num-classes"));
}

TEST(OpenSequences, RefusesFilesWithoutAny) {
  const TemporaryFolder folder;
  const auto path = folder.write("train.bin", tokens(0, 3));
  const auto of = [](const std::string& paths) {
    return message_of<DataError>([&] { open_sequences(paths, SequenceKind::kTokens, 3); });
  };
  EXPECT_EQ(of(path),
      "tokens: the part train has 3 tokens and no sequence of 3 and the token that follows");
  folder.write("train.bin", tokens(0, 4));
  folder.write("more.uint32.bin", tokens(0, 8));
  EXPECT_THAT(of(folder.str()), HasSubstr("its tokens are uint16, but those of"));
  EXPECT_THROW(open_sequences(path, SequenceKind::kTokens, 0), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
