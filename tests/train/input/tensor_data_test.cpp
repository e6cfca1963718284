#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "tests/data/tensor_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/train/input/datasets.h"

namespace lockstep {
namespace {

using testing::counted_floats;
using ::testing::HasSubstr;
using testing::integers;
using testing::TemporaryFolder;
using testing::write_tensors;

TrainOptions tensor_options(const std::string& name, const std::string& paths) {
  TrainOptions options;
  options.data.name = name;
  options.data.directory = paths;
  return options;
}

std::string tensor_refusal(const TrainOptions& options) {
  return testing::message_of<InvalidArgument>([&] { load_datasets(options); });
}

TEST(TensorData, HasThePartsOfItsFiles) {
  const TemporaryFolder folder;
  write_tensors(
      folder.path() / "train.safetensors", {counted_floats("x", {4}), integers("y", {0, 1, 2, 1})});
  write_tensors(folder.path() / "val.safetensors", {counted_floats("x", {1}), integers("y", {4})});
  TrainOptions options = tensor_options("tensors", folder.str());
  Datasets sets = load_datasets(options);
  EXPECT_EQ(sets.train->size(), 4);
  EXPECT_EQ(sets.train->classes(), 5);
  EXPECT_EQ(sets.validation, nullptr);
  EXPECT_EQ(sets.test->size(), 1);
  EXPECT_TRUE(sets.is_mere_copy);
  write_tensors(
      folder.path() / "test.safetensors", {counted_floats("x", {2}), integers("y", {1, 0})});
  options.repeat = 3;
  sets = load_datasets(options);
  EXPECT_EQ(sets.train->size(), 12);
  EXPECT_EQ(sets.validation->size(), 1);
  EXPECT_EQ(sets.test->size(), 2);
  options.loading.val_split = 0.5;
  EXPECT_THAT(
      tensor_refusal(options), HasSubstr("--val-split is for a set without a part to validate on"));
}

TEST(TensorData, WithoutATestIsSplitByClassWhereThereAreClasses) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "all.safetensors";
  std::vector<std::int64_t> classes(20);
  for (std::size_t i = 10; i < 20; ++i) classes[i] = 1;
  write_tensors(path, {counted_floats("x", {20}), integers("y", classes)});
  TrainOptions options = tensor_options("tensors", path);
  EXPECT_THAT(tensor_refusal(options), HasSubstr("has nothing to test on"));
  options.loading.val_split = 0.2;
  Datasets sets = load_datasets(options);
  EXPECT_EQ(sets.train->size(), 16);
  std::multiset<std::int64_t> held;
  for (std::int64_t i = 0; i < sets.test->size(); ++i) held.insert(*sets.test->label(i));
  EXPECT_EQ(held, (std::multiset<std::int64_t>{0, 0, 1, 1}));
  write_tensors(path, {counted_floats("x", {20}), counted_floats("y", {20})});
  sets = load_datasets(options);
  EXPECT_EQ(sets.test->size(), 4);
  EXPECT_EQ(sets.test->label(0), std::nullopt);
}

TEST(TensorData, HasAnotherFingerprintWhereItsContentHas) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "train.safetensors";
  write_tensors(
      folder.path() / "test.safetensors", {counted_floats("x", {1, 2}), counted_floats("y", {1})});
  const TrainOptions options = tensor_options("tensors", folder.str());
  std::set<std::string> seen;
  const auto is_new = [&](const std::vector<testing::WrittenTensor>& tensors) {
    write_tensors(path, tensors);
    return seen.insert(load_datasets(options).fingerprint).second;
  };
  EXPECT_TRUE(is_new({counted_floats("x", {3, 2}), counted_floats("y", {3})}));
  EXPECT_FALSE(is_new({counted_floats("x", {3, 2}), counted_floats("y", {3})}));
  EXPECT_TRUE(is_new({counted_floats("x", {3, 2}), counted_floats("y", {3}, 1)})) << "targets";
  EXPECT_TRUE(is_new({counted_floats("x", {3, 2}, 1), counted_floats("y", {3})})) << "inputs";
  EXPECT_TRUE(is_new({counted_floats("x", {4, 2}), counted_floats("y", {4})})) << "size";
  const auto x = counted_floats("x", {3, 2});
  const auto with_target = [&](std::int64_t last) {
    write_tensors(folder.path() / "test.safetensors",
        {counted_floats("x", {1, 2}), testing::integers("target", {-1})});
    return is_new({x, testing::integers("target", {-1, 0, last})});
  };
  EXPECT_TRUE(with_target(1));
  EXPECT_TRUE(with_target(2)) << "whole numbers that are no classes";
  std::filesystem::remove(folder.path() / "test.safetensors");
  const auto of_names = [&](const char* name) {
    write_tensors(path, {x, counted_floats(name, {3})});
    TrainOptions split = options;
    split.loading.val_split = 0.4;
    return load_datasets(split).fingerprint;
  };
  EXPECT_NE(of_names("y"), of_names("label")) << "names";
}

TEST(TensorData, OfTokensNeedsALength) {
  const TemporaryFolder folder;
  std::vector<std::uint8_t> text(100, 'a');
  const auto path = folder.write("train.txt", text);
  folder.write("val.txt", text);
  TrainOptions options = tensor_options("text", folder.str());
  EXPECT_EQ(tensor_refusal(options),
      "train: --data text is cut into sequences: give --sequence-length T");
  options.model = "gpt2-nano";
  EXPECT_EQ(sequence_length(options), 256);
  EXPECT_THROW(load_datasets(options), DataError) << "so long is no sequence of these";
  options.data.sequence_length = 8;
  const Datasets sets = load_datasets(options);
  EXPECT_EQ(sets.train->size(), 12);
  EXPECT_EQ(sets.train->classes(), 256);
  EXPECT_EQ(sets.train->targets().front().sizes, std::vector<std::int64_t>{8});
  EXPECT_THAT(sets.remark, HasSubstr("3 of 100 tokens of the part train"));
  options.classes = 100;
  EXPECT_EQ(load_datasets(options).train->classes(), 100);
}

TEST(TensorData, OfTokensHasTheVocabularyOfFlagWeightsOrData) {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> tokens{1, 2, 3, 9, 5};
  for (const char* part : {"train.bin", "val.bin"})
    folder.write(part, testing::bytes_of_numbers(tokens));
  TrainOptions options = tensor_options("tokens", folder.str());
  options.data.sequence_length = 2;
  options.model = "gpt2-nano";
  const auto vocabulary = [&] { return load_datasets(options).train->classes(); };
  EXPECT_EQ(vocabulary(), 10);
  options.pretrained = write_tensors(folder.path() / "w.safetensors",
      {counted_floats("wpe.weight", {8, 2}), counted_floats("wte.weight", {12, 2})});
  EXPECT_EQ(vocabulary(), 12);
  options.classes = 11;
  EXPECT_EQ(vocabulary(), 11);
  options.classes = {};
  options.model = "net.pt2";
  EXPECT_EQ(vocabulary(), 0) << "nobody knows";
}

// Each rank has files of its own here, which only rank 0 reads for it.
TEST(TensorData, OfTokensTakesTheVocabularyThatRankZeroFinds) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, std::uint16_t last) {
    std::filesystem::create_directory(folder.path() / name);
    for (const char* part : {"train.bin", "val.bin"})
      folder.write(name + "/" + part,
          testing::bytes_of_numbers(std::vector<std::uint16_t>{1, 2, 3, 0, last}));
  };
  write("0", 9);
  write("1", 4);
  run_ranks(2, [&](const ProcessGroup& world) {
    TrainOptions options =
        tensor_options("tokens", (folder.path() / std::to_string(world.rank())).string());
    options.data.sequence_length = 2;
    options.model = "gpt2-nano";
    const Datasets sets = load_datasets(options, world);
    EXPECT_EQ(sets.train->classes(), 10);
    EXPECT_EQ(sets.train->size(), 2);
    const auto remark = HasSubstr("a vocabulary of 10");
    if (world.rank() == 0)
      EXPECT_THAT(sets.remark, remark);
    else
      EXPECT_THAT(sets.remark, ::testing::Not(remark));
    options.classes = 12;
    EXPECT_EQ(load_datasets(options, world).train->classes(), 12);
  });
}

TEST(TensorData, RefusesFlagsOfOtherSets) {
  const TemporaryFolder folder;
  const auto path = write_tensors(folder.path() / "a.safetensors", {counted_floats("x", {2})});
  TrainOptions options = tensor_options("tensors", path);
  options.data.sequence_length = 8;
  EXPECT_THAT(
      tensor_refusal(options), HasSubstr("--sequence-length is for --data tokens:PATH and text"));
  options.data.sequence_length = {};
  options.loading.image_size = 8;
  EXPECT_THAT(tensor_refusal(options), HasSubstr("--augment and --image-size are for images"));
  options = tensor_options("mock", "");
  options.data.targets = {"y"};
  EXPECT_THAT(
      tensor_refusal(options), HasSubstr("--inputs and --targets are for --data tensors:PATH"));
  options = tensor_options("tokens", path);
  options.data.inputs = {"y"};
  EXPECT_THAT(
      tensor_refusal(options), HasSubstr("--inputs and --targets are for --data tensors:PATH"));
}

}  // namespace
}  // namespace lockstep
