#include "lockstep/data/tensor_samples.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/data/tensor_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/loader.h"

namespace lockstep::data {
namespace {

using lockstep::testing::bytes_of_numbers;
using lockstep::testing::counted_floats;
using lockstep::testing::integers;
using lockstep::testing::TemporaryFolder;
using lockstep::testing::write_tensors;
using ::testing::HasSubstr;

SamplesPointer samples_of(const std::string& paths, const TensorChoice& choice = {}) {
  TensorTables tables = open_tensors(paths, choice);
  return std::make_shared<TensorSamples>(std::move(tables.train), tables.classes);
}

Batch batch_of(const Samples& set, const std::vector<std::int64_t>& indices,
    torch::ScalarType dtype = torch::kFloat) {
  BatchForm form = form_of(set);
  form.dtype = dtype;
  Batch batch = empty_batch(std::ssize(indices), form);
  std::vector<SampleKey> keys;
  for (const std::int64_t index : indices) keys.push_back({.index = index});
  set.read(keys, batch);
  return batch;
}

TEST(TensorSamples, ReadRowsOfAllColumnsFromAllFiles) {
  const TemporaryFolder folder;
  write_tensors(folder.path() / "a.safetensors",
      {counted_floats("x", {2, 2, 3}), integers("y", {1, -100}), counted_floats("mask", {2})});
  write_tensors(folder.path() / "b.safetensors",
      {counted_floats("x", {1, 2, 3}, 12), integers("y", {4}), counted_floats("mask", {1}, 2)});
  const auto set = samples_of(folder.str());
  EXPECT_EQ(set->size(), 3);
  EXPECT_EQ(set->classes(), 5);
  EXPECT_EQ(set->shape(), (ImageShape{1, 1, 7}));
  EXPECT_EQ(set->inputs(), (std::vector<TensorForm>{{"x", {2, 3}}, {"mask", {}}}));
  EXPECT_EQ(set->targets(), (std::vector<TensorForm>{{"y", {}, torch::kLong}}));
  EXPECT_EQ(set->label(2), 4);
  EXPECT_EQ(set->label(1), std::nullopt) << "ignored";
  EXPECT_EQ(set->name(2), (folder.path() / "b.safetensors").string() + ", sample 0");
  const Batch batch = batch_of(*set, {2, 0, 1});
  const auto all = torch::arange(18, torch::kFloat).view({3, 2, 3});
  EXPECT_TRUE(batch.input().equal(all.index_select(0, torch::tensor({2, 0, 1}))));
  EXPECT_TRUE(batch.inputs[1].tensor.equal(torch::tensor({2.0F, 0.0F, 1.0F})));
  EXPECT_TRUE(batch.target().equal(torch::tensor({4, 1, -100}, torch::kLong)));
}

TEST(TensorSamples, OfAllTypesAreTakenAsTheirTableSays) {
  const TemporaryFolder folder;
  const auto path = write_tensors(folder.path() / "a.safetensors",
      {{"wide", ElementType::kFloat64, {1}, bytes_of_numbers<double>({0.1})},
          {"ids", ElementType::kInt32, {1, 2}, bytes_of_numbers<std::int32_t>({-1, 70000})},
          {"pixels", ElementType::kUint8, {1, 2}, {200, 7}},
          {"mask", ElementType::kBool, {1, 2}, {2, 0}},
          {"target.levels", ElementType::kUint8, {1, 2}, {200, 7}},
          {"target.price", ElementType::kFloat32, {1}, bytes_of_numbers<float>({0.1F})}});
  const auto set = samples_of(path);
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    const Batch batch = batch_of(*set, {0}, dtype);
    EXPECT_TRUE(batch.inputs[0].tensor.equal(torch::tensor({0.1F}).to(dtype)));
    EXPECT_EQ(batch.inputs[0].tensor.scalar_type(), dtype);
    EXPECT_TRUE(batch.inputs[1].tensor.equal(torch::tensor({{-1, 70000}}, torch::kLong)));
    EXPECT_TRUE(batch.inputs[2].tensor.equal(torch::tensor({{200, 7}}, torch::kByte)));
    EXPECT_TRUE(
        batch.inputs[3].tensor.view(torch::kByte).equal(torch::tensor({{1, 0}}, torch::kByte)));
    EXPECT_TRUE(batch.targets[0].tensor.equal(torch::tensor({{200, 7}}, torch::kLong)));
    EXPECT_EQ(batch.targets[1].tensor.scalar_type(), torch::kFloat);
    EXPECT_EQ(batch.targets[1].tensor.item<float>(), 0.1F);
  }
}

TEST(TensorSamples, WidenHalvesAsLibTorchDoes) {
  std::vector<std::uint16_t> all(1 << 16);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  const auto count = static_cast<std::int64_t>(all.size());
  const TemporaryFolder folder;
  const auto path = write_tensors(folder.path() / "a.safetensors",
      {{"half", ElementType::kFloat16, {1, count}, bytes_of_numbers(all)},
          {"short", ElementType::kBfloat16, {1, count}, bytes_of_numbers(all)}});
  const Batch batch = batch_of(*samples_of(path), {0});
  for (const auto& [place, type] : {std::pair{0, torch::kHalf}, std::pair{1, torch::kBFloat16}}) {
    const auto expected = torch::from_blob(all.data(), {1, count}, type).to(torch::kFloat);
    const auto& read = batch.inputs[static_cast<std::size_t>(place)].tensor;
    EXPECT_TRUE(read.isnan().equal(expected.isnan()));
    EXPECT_TRUE(read.nan_to_num().equal(expected.nan_to_num()));
  }
}

TEST(TensorSamples, OfTokensAreShiftedByOne) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.txt", std::vector<std::uint8_t>{'a', 'b', 'c', 'd', 'e'});
  TensorTables tables = open_sequences(path, SequenceKind::kText, 2);
  const TensorSamples set(std::move(tables.train), tables.classes);
  EXPECT_EQ(set.classes(), 256);
  EXPECT_EQ(set.label(0), std::nullopt);
  const Batch batch = batch_of(set, {1, 0});
  EXPECT_TRUE(batch.input().equal(torch::tensor({{'c', 'd'}, {'a', 'b'}}, torch::kLong)));
  EXPECT_TRUE(batch.target().equal(torch::tensor({{'d', 'e'}, {'b', 'c'}}, torch::kLong)));
}

// Of five numbers of int16.
std::vector<std::uint8_t> npy_of(const std::vector<std::int16_t>& numbers) {
  const std::string head = "{'descr': '<i2', 'fortran_order': False, 'shape': (5,)}";
  std::string bytes = "\x93NUMPY\x01";
  bytes += std::string(1, '\0') + static_cast<char>(head.size() + 1) + std::string(1, '\0');
  bytes += head + "\n";
  std::vector<std::uint8_t> all(bytes.begin(), bytes.end());
  const auto content = bytes_of_numbers(numbers);
  all.insert(all.end(), content.begin(), content.end());
  return all;
}

TEST(TensorSamples, OfTokensOutsideTheVocabularyAreRefusedByTheirPlace) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::vector<std::int16_t>& tokens, std::int64_t index) {
    const auto path = folder.write("train.npy", npy_of(tokens));
    TensorTables tables = open_sequences(path, SequenceKind::kTokens, 2, 9);
    const TensorSamples set(std::move(tables.train), tables.classes);
    batch_of(set, {1 - index});
    return lockstep::testing::message_of<DataError>([&] { batch_of(set, {index}); });
  };
  EXPECT_EQ(refusal({1, 2, 8, 3, 9}, 1).substr(folder.str().size() + 1),
      "train.npy: token 4 is 9, and the vocabulary of the model is 9; give --num-classes 10 or "
      "more");
  EXPECT_THAT(refusal({1, 2, 3, 11, 5}, 1), HasSubstr("token 3 is 11")) << "of an input";
  EXPECT_THAT(refusal({1, -100, 3, 4, 5}, 0),
      ::testing::EndsWith("token 1 is -100, and the vocabulary of the model is 9"));
}

TEST(TensorSamples, MayHaveNoTarget) {
  const TemporaryFolder folder;
  const auto path = write_tensors(folder.path() / "a.safetensors", {counted_floats("x", {3, 2})});
  const auto set = samples_of(path);
  EXPECT_TRUE(set->targets().empty());
  EXPECT_EQ(set->label(0), std::nullopt);
  std::int64_t seen = 0;
  for (const auto& batch : Loader(set, {0, 1, 2}, 2, {.workers = 1})) seen += batch.size();
  EXPECT_EQ(seen, 3);
}

TEST(TensorSamples, RefuseAnIndexOrABatchThatDoesNotFit) {
  const TemporaryFolder folder;
  const auto set =
      samples_of(write_tensors(folder.path() / "a.safetensors", {counted_floats("x", {3, 2})}));
  EXPECT_THROW(batch_of(*set, {3}), InvalidArgument);
  const SampleKey key{.index = 0};
  EXPECT_THROW(set->read({&key, 1}, empty_batch(2, form_of(*set))), InvalidArgument);
}

TEST(TensorSamples, OfAFileThatChangedAreRefused) {
  const TemporaryFolder folder;
  const auto path = write_tensors(folder.path() / "a.safetensors", {counted_floats("x", {3, 2})});
  const auto set = samples_of(path);
  std::filesystem::resize_file(path, 60);
  EXPECT_THROW(batch_of(*set, {2}), DataError);
}

}  // namespace
}  // namespace lockstep::data
