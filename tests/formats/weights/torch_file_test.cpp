#include "lockstep/formats/weights/torch_file.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/weights/expected_tensors.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::python_file;

std::string python_refusal(const std::string& file) {
  return message_of<DataError>([&] { tensors_of(read_torch_file(python_file(file))); });
}

void expect_python(const TensorFile& file, const std::vector<testing::ExpectedTensor>& expected) {
  ASSERT_EQ(file.entries().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const TensorEntry& entry = file.entries()[i];
    EXPECT_EQ(entry.name, expected[i].name);
    EXPECT_EQ(entry.type, expected[i].type) << entry.name;
    EXPECT_EQ(entry.shape, expected[i].shape) << entry.name;
    EXPECT_TRUE(std::ranges::equal(entry.bytes, expected[i].bytes)) << entry.name;
  }
}

class WhatPythonSaved : public ::testing::TestWithParam<const char*> {};

// Conformance W6: OrderedDict, plain, single and nested dicts, parameters, views, every type.
TEST_P(WhatPythonSaved, GivesTheSameTensorsInTheSameOrder) {
  expect_python(
      tensors_of(read_torch_file(python_file(GetParam()))), testing::expected_tensors(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(TorchFile, WhatPythonSaved,
    ::testing::Values("types.pt", "complex128.pt", "single.pt", "parameter.pt", "views.pt",
        "nested.pt", "protocol5.pt"));

template <typename T>
const T& at(const TorchValue& dict, const TorchKey& key) {
  for (const auto& [name, value] : std::get<TorchDict>(dict.content).items) {
    if (name == key) return std::get<T>(value.content);
  }
  throw std::out_of_range("no such key");
}

TorchValue wrap(const TorchDict& dict) { return {dict}; }

class Checkpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(Checkpoint, GivesEveryKindOfValue) {
  const TorchFile file = read_torch_file(python_file(GetParam()));
  EXPECT_EQ(at<std::int64_t>(file.value, "epoch"), 3);
  EXPECT_EQ(at<double>(file.value, "best"), 0.5);
  EXPECT_EQ(at<std::string>(file.value, "name"), "né");
  EXPECT_EQ(at<bool>(file.value, "done"), false);
  at<std::monostate>(file.value, "none");
  EXPECT_EQ(at<std::int64_t>(file.value, "far"), -(std::int64_t{1} << 40));
  const auto state = wrap(at<TorchDict>(wrap(at<TorchDict>(file.value, "optimizer")), "state"));
  EXPECT_THAT(at<TorchTensor>(wrap(at<TorchDict>(state, std::int64_t{0})), "exp_avg").shape,
      ElementsAre(3, 2));
  const auto groups = at<TorchList>(wrap(at<TorchDict>(file.value, "optimizer")), "param_groups");
  const auto& betas = at<TorchList>(groups.items.at(0), "betas");
  EXPECT_EQ(std::get<double>(betas.items.at(1).content), 0.999);
  EXPECT_EQ(at<double>(groups.items.at(0), "lr"), 0.1);
}

TEST_P(Checkpoint, GivesAPartByItsName) {
  const TorchFile file = read_torch_file(python_file(GetParam()));
  auto expected = testing::expected_tensors(GetParam());
  std::erase_if(expected, [](auto& tensor) { return !tensor.name.starts_with("model."); });
  for (auto& tensor : expected) tensor.name.erase(0, 6);
  expect_python(tensors_of(file, "model"), expected);
  const TensorFile state = tensors_of(file, "optimizer.state");
  EXPECT_EQ(state.entries().size(), 12U);
}

TEST_P(Checkpoint, RefusesToLeaveOutWhatIsNoTensor) {
  const std::string message = python_refusal(GetParam());
  EXPECT_THAT(
      message, HasSubstr("values are not tensors: \"optimizer.param_groups.0.lr\" (a float), "));
  EXPECT_THAT(
      message, HasSubstr(": take a part that holds tensors alone: \"model\" (7 tensors); "));
  const TorchFile file = read_torch_file(python_file(GetParam()));
  EXPECT_THAT(message_of<DataError>([&] { tensors_of(file, "optimizer"); }),
      HasSubstr(": take a part that holds tensors alone: \"optimizer.state\" (12 tensors); "));
  EXPECT_THROW(tensors_of(file, "mode"), InvalidArgument);
  EXPECT_THROW(tensors_of(file, "epoch"), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(TorchFile, Checkpoint, ::testing::Values("checkpoint.pt", "protocol4.pt"));

/// With objects of Python beside its weights, as the training scripts of timm and torchvision save
/// them.
class WithOthers : public ::testing::TestWithParam<const char*> {};

TEST_P(WithOthers, GivesThePartThatIsAskedFor) {
  const TorchFile file = read_torch_file(python_file(GetParam()));
  auto expected = testing::expected_tensors(GetParam());
  for (auto& tensor : expected) tensor.name.erase(0, std::string("state_dict.").size());
  expect_python(tensors_of(file, "state_dict"), expected);
  EXPECT_EQ(at<std::int64_t>(file.value, "epoch"), 3);
  for (const auto& [key, what] :
      {std::pair("args", "argparse.Namespace"),
          std::pair("metric", "numpy._core.multiarray.scalar"), std::pair("device", "torch.device"),
          std::pair("classes", GetParam() == std::string("others.pt") ? "__builtin__.set" : "set"),
          std::pair("pairs", "a dict with a key that is a tuple"),
          std::pair("dtype", "torch.float16"),
          std::pair("large", "an integer of more than 64 bits")})
    EXPECT_EQ(at<TorchOther>(file.value, key).what, what) << key;
  EXPECT_EQ(at<TorchList>(wrap(at<TorchDict>(file.value, "history")), "loss").items.size(), 1u);
}

TEST_P(WithOthers, NamesWhatIsNotRead) {
  const TorchFile file = read_torch_file(python_file(GetParam()));
  const std::string message = message_of<DataError>([&] { tensors_of(file); });
  EXPECT_THAT(message, HasSubstr("holds tensors alone: \"state_dict\" (2 tensors); "));
  EXPECT_THAT(message, HasSubstr("\"args\" (argparse.Namespace, which is not read, let alone "));
  EXPECT_THROW(tensors_of(file, "args"), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(TorchFile, WithOthers, ::testing::Values("others.pt", "others4.pt"));

TEST(TorchFile, SharedStoragesAreNotCopied) {
  const TorchFile file = read_torch_file(python_file("views.pt"));
  const TensorFile views = tensors_of(file);
  EXPECT_EQ(views.find("row")->bytes.data(), views.find("base")->bytes.data() + 48);
  EXPECT_EQ(views.find("scalar")->bytes.data(), views.find("base")->bytes.data() + 92);
}

TEST(TorchFile, TensorsOutliveTheFile) {
  auto file = std::make_unique<TorchFile>(read_torch_file(python_file("views.pt")));
  const TensorFile views = tensors_of(*file);
  file.reset();
  expect_python(views, testing::expected_tensors("views.pt"));
}

TEST(TorchFile, ReadsAnEmptyDict) {
  const TensorFile empty = tensors_of(read_torch_file(python_file("empty.pt")));
  EXPECT_TRUE(empty.entries().empty());
}

TEST(TorchFile, RefusesLegacyFiles) {
  EXPECT_EQ(python_refusal("legacy.pt"),
      python_file("legacy.pt").string() +
          ": offset 0: a bare pickle, as PyTorch before 1.6 wrote it: load it in Python and "
          "torch.save it again");
}

TEST(TorchFile, RefusesTorchScript) {
  EXPECT_THAT(
      python_refusal("script.pt"), HasSubstr("which holds code: in Python, "
                                             "torch.save(torch.jit.load(...).state_dict())"));
}

// Conformance W9, and fact 3's relatives: nothing is executed, the name is said.
TEST(TorchFile, RefusesCallablesByNameAndExecutesNothing) {
  std::filesystem::remove("lockstep-was-executed");
  EXPECT_THAT(python_refusal("hostile.pt"),
      HasSubstr("\"x\" (posix.system, which is not read, let alone executed)"));
  EXPECT_FALSE(std::filesystem::exists("lockstep-was-executed"));
}

TEST(TorchFile, RefusesATensorWithoutAName) {
  EXPECT_THAT(python_refusal("tensor.pt"),
      HasSubstr("holds a tensor without a name; in Python, save a dict"));
}

TEST(TorchFile, RefusesTruncationAtEveryByte) {
  const auto whole = testing::file_bytes(python_file("single.pt"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto cut = std::span(whole).first(size);
    EXPECT_THAT(
        message_of<DataError>([&] { parse_torch_file(cut, "FILE"); }), HasSubstr("FILE: offset "))
        << size;
  }
}

TEST(TorchFile, RefusesAFlippedBitInAnyStorage) {
  const auto whole = testing::file_bytes(python_file("types.pt"));
  const TensorFile tensors = tensors_of(parse_torch_file(whole, "FILE"));
  for (const TensorEntry& entry : tensors.entries()) {
    auto damaged = whole;
    damaged[static_cast<std::size_t>(entry.bytes.data() - whole.data())] ^= 0x10;
    EXPECT_THAT(message_of<DataError>([&] { parse_torch_file(damaged, "FILE"); }),
        HasSubstr("is not the stored one"))
        << entry.name;
  }
}

}  // namespace
}  // namespace lockstep
