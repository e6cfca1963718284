#include "lockstep/formats/weights/torch_file.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/mutated.h"
#include "tests/formats/weights/expected_tensors.h"
#include "tests/formats/weights/mutation.h"
#include "tests/formats/weights/torch_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/formats/weights/weight_file.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

using testing::Bytes;
using testing::Dice;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::python_file;

std::string python_refusal(const std::string& file) {
  return message_of<DataError>([&] { tensors_of(read_torch_file(python_file(file))); });
}

template <typename Tensor>
void expect_tensors(const TensorFile& file, const std::vector<Tensor>& expected) {
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
  expect_tensors(
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
  expect_tensors(tensors_of(file, "model"), expected);
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
  expect_tensors(tensors_of(file, "state_dict"), expected);
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
  expect_tensors(views, testing::expected_tensors("views.pt"));
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

class TorchFileWriter : public ::testing::Test {
 protected:
  testing::TemporaryFolder directory_;
  std::filesystem::path path_ = directory_.path() / "out.pt";
};

TEST_F(TorchFileWriter, WritesWhatItReads) {
  for (const char* name :
      {"types.pt", "views.pt", "nested.pt", "parameter.pt", "complex128.pt", "empty.pt"}) {
    const TensorFile original = tensors_of(read_torch_file(python_file(name)));
    write_weights(path_, original.entries());
    const TensorFile again = tensors_of(read_torch_file(path_));
    expect_tensors(again, original.entries());
  }
}

TEST_F(TorchFileWriter, L6WritesNothingThatIsNotReadAgain) {
  const auto refused = [&](const std::vector<TensorEntry>& entries) {
    const std::string message = message_of<InvalidArgument>([&] { write_weights(path_, entries); });
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
  write_weights(path_, many);
  const TensorFile again = tensors_of(read_torch_file(path_));
  EXPECT_EQ(again.entries().size(), many.size());
}

TEST_F(TorchFileWriter, LaysEveryPartAtAMultipleOf64AsPyTorchDoes) {
  const TensorFile original = tensors_of(read_torch_file(python_file("types.pt")));
  write_weights(path_, original.entries());
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
  write_weights(path_, entries);
  const TensorFile again = tensors_of(read_torch_file(path_));
  for (const TensorEntry& entry : entries) EXPECT_EQ(again.find(entry.name)->shape, entry.shape);
}

TEST_F(TorchFileWriter, MoreFilesThanANarrowCountHolds) {
  std::vector<TensorEntry> entries;
  for (int i = 0; i < 70'000; ++i)
    entries.push_back({std::to_string(i), ElementType::kUint8, {0}, {}});
  write_weights(path_, entries);
  const TensorFile file = tensors_of(read_torch_file(path_));
  EXPECT_EQ(file.entries().size(), entries.size());
}

TEST_F(TorchFileWriter, RefusesEntriesThatLie) {
  const std::vector<std::uint8_t> bytes(4);
  const std::vector<TensorEntry> wrong{{"a", ElementType::kFloat32, {2}, bytes}};
  EXPECT_THAT(message_of<InvalidArgument>([&] { write_weights(path_, wrong); }),
      HasSubstr("write_torch_file: tensor \"a\" has 4 bytes, which is not"));
  const TensorEntry twice{"a", ElementType::kFloat32, {1}, bytes};
  EXPECT_THROW(write_weights(path_, std::vector{twice, twice}), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

constexpr int kTorchMutations = 5'000;
const std::vector<std::string> kSeeds{
    "views.pt", "checkpoint.pt", "nested.pt", "parameter.pt", "protocol5.pt", "types.pt"};

/// Spells a tree of values with every byte of its tensors.
struct Spelling {
  std::string operator()(std::monostate) const { return "N"; }
  std::string operator()(bool value) const { return value ? "T" : "F"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return concat('f', value); }
  std::string operator()(const std::string& value) const { return concat('"', value, '"'); }
  std::string operator()(const TorchOther& other) const { return concat('<', other.what, '>'); }
  std::string operator()(const TorchTensor& tensor) const {
    return concat(torch_name(tensor.type), shape_text(tensor.shape),
        std::string(tensor.bytes.begin(), tensor.bytes.end()));
  }
  std::string operator()(const TorchList& list) const {
    std::string text = "[";
    for (const TorchValue& item : list.items) text += std::visit(*this, item.content) + ",";
    return text + "]";
  }
  std::string operator()(const TorchDict& dict) const {
    std::string text = "{";
    for (const auto& [key, value] : dict.items) {
      text += std::visit(*this, std::variant<std::int64_t, std::string>(key)) + ":";
      text += std::visit(*this, value.content) + ",";
    }
    return text + "}";
  }
};

/// Returns the spelling of a file; nothing if it is refused.
std::optional<std::string> spelled(const Bytes& bytes) {
  const auto file =
      testing::read_within(128 * bytes.size(), [&] { return parse_torch_file(bytes, "FILE"); });
  return file ? std::optional(std::visit(Spelling(), file->value.content)) : std::nullopt;
}

/// Checks what must hold of any tensor, whatever the pickle says.
struct Soundness {
  template <typename T>
  void operator()(const T&) const {}
  void operator()(const TorchTensor& tensor) const {
    const auto bytes = tensor_bytes(tensor.type, tensor.shape);
    ASSERT_TRUE(bytes.has_value());
    EXPECT_EQ(tensor.bytes.size(), *bytes);
    // Touches each, so that a sanitizer sees those that are not there.
    EXPECT_GE(std::count(tensor.bytes.begin(), tensor.bytes.end(), 0), 0);
  }
  void operator()(const TorchList& list) const {
    for (const TorchValue& item : list.items) std::visit(*this, item.content);
  }
  void operator()(const TorchDict& dict) const {
    for (const auto& item : dict.items) std::visit(*this, item.value.content);
  }
};

// Checksums guard all contents, and both headers of each file say the same: what is read at all is
// the original.
TEST(TorchMutation, FilesOfOtherBytesReadAsBeforeOrNotAtAll) {
  Dice dice(1);
  int read = 0;
  for (int i = 0; i < kTorchMutations && !HasFailure(); ++i) {
    const Bytes whole = testing::file_bytes(python_file(dice.one_of(kSeeds)));
    std::string bytes(whole.begin(), whole.end());
    // Half of the changes hit the headers: the directory lies in the last part.
    const std::size_t begin = dice.below(2) == 0 ? bytes.size() * 3 / 5 : 0;
    for (std::size_t changes = 1 + dice.below(2); changes > 0; --changes) {
      testing::mutate_bytes(bytes, begin, bytes.size(), dice);
    }
    SCOPED_TRACE(concat("mutation ", i));
    if (const auto spelling = spelled(Bytes(bytes.begin(), bytes.end()))) {
      EXPECT_EQ(*spelling, *spelled(whole));
      ++read;
    }
  }
  EXPECT_GT(read, kTorchMutations / 50);
  EXPECT_LT(read, kTorchMutations / 2);
}

/// Takes an archive apart, so that it can be put together with another part and right checksums.
std::vector<testing::ZipPart> parts_of(const Bytes& bytes) {
  std::vector<testing::ZipPart> parts;
  for (const ZipEntry& entry : read_zip(bytes, "FILE")) {
    parts.push_back({.name = entry.name, .content = {entry.bytes.begin(), entry.bytes.end()}});
  }
  return parts;
}

/// Changes opcodes and their arguments: whole pieces of the pickle are moved, repeated, left out.
void mutate_pickle(std::string& pickle, Dice& dice) {
  static const std::string kOpcodes = ".(NK\x88\x89JMX)t\x85\x86\x87]ae}suqrhjRbQ\x93\x94\x95";
  const std::size_t at = 2 + dice.below(pickle.size() - 2);
  switch (dice.below(4)) {
    case 0:
      pickle[at] = kOpcodes[dice.below(kOpcodes.size())];
      break;
    case 1: {  // a small number somewhere becomes another
      const std::size_t number = pickle.find('K', at);
      if (number + 1 < pickle.size()) pickle[number + 1] = static_cast<char>(dice.below(256));
      break;
    }
    case 2: {  // a value that was kept is replaced by another
      const std::size_t kept = pickle.find('h', at);
      if (kept + 1 < pickle.size()) pickle[kept + 1] = static_cast<char>(dice.below(64));
      break;
    }
    default:
      testing::mutate_bytes(pickle, 2, pickle.size(), dice);
      break;
  }
}

TEST(TorchMutation, PicklesOfOtherOpcodesGiveSoundTensorsOrNone) {
  Dice dice(3);
  int read = 0;
  for (int i = 0; i < 2 * kTorchMutations && !HasFailure(); ++i) {
    auto parts = parts_of(testing::file_bytes(python_file(dice.one_of(kSeeds))));
    for (auto& part : parts) {
      if (part.name.ends_with("data.pkl")) mutate_pickle(part.content, dice);
    }
    SCOPED_TRACE(concat("mutation ", i));
    const Bytes bytes = testing::zip_bytes(parts);
    // A view may repeat its elements, up to 64 MiB.
    const auto file = testing::read_within(
        (64U << 20) + 128 * bytes.size(), [&] { return parse_torch_file(bytes, "FILE"); });
    if (!file) continue;
    std::visit(Soundness(), file->value.content);
    ++read;
  }
  EXPECT_GT(read, kTorchMutations / 50);
  EXPECT_LT(read, kTorchMutations);
}

}  // namespace
}  // namespace lockstep
