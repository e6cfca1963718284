#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/mutated.h"
#include "tests/formats/weights/torch_bytes.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/torch_file.h"

namespace lockstep {
namespace {

using testing::dict_of;
using ::testing::HasSubstr;
using testing::integer;
using testing::name;
using testing::pickle_of;
using testing::tensor;
using testing::text;
using testing::torch_bytes;
using testing::tuple;
using testing::ZipPart;

const std::string kElements(24, 'x');

std::string refusal_of_bytes(const std::vector<std::uint8_t>& bytes) {
  testing::take_largest_allocation();
  const std::string message =
      testing::message_of<DataError>([&] { parse_torch_file(bytes, "FILE"); });
  EXPECT_LE(testing::take_largest_allocation(), 32 * bytes.size() + 64 * 1024) << message;
  EXPECT_THAT(message, ::testing::StartsWith("FILE: offset "));
  return message;
}

/// Returns the refusal of a file with this pickle.
std::string refusal(const std::string& pickle) {
  return refusal_of_bytes(torch_bytes(pickle, kElements));
}

std::string refusal_of_tensor(const testing::TensorParts& parts) {
  return refusal(dict_of(tensor(parts)));
}

/// Parts of a tensor, or the opcodes of a dict's value, and what is said of the file.
template <typename Wrong>
using Refusals = std::vector<std::pair<Wrong, std::string>>;

void expect_refusals(const Refusals<testing::TensorParts>& refusals) {
  for (const auto& [parts, reason] : refusals)
    EXPECT_THAT(refusal_of_tensor(parts), HasSubstr(reason));
}

void expect_refusals_of_values(const Refusals<std::string>& refusals) {
  for (const auto& [opcodes, reason] : refusals)
    EXPECT_THAT(refusal(dict_of(opcodes)), HasSubstr(reason));
}

void expect_read(const std::string& pickle) {
  EXPECT_NO_THROW(parse_torch_file(torch_bytes(pickle, kElements), "FILE"));
}

TEST(TorchRefusal, TheUnbrokenTensorIsRead) {
  const auto bytes = torch_bytes(dict_of(tensor()), kElements);
  const TorchFile file = parse_torch_file(bytes, "FILE");
  EXPECT_EQ(tensors_of(file).find("a")->bytes.size(), 24U);
}

// A file of 1 KB that claimed two million floats made LibTorch's reader run over its heap.
TEST(TorchRefusal, StorageSizesMustBeThoseOfTheFile) {
  EXPECT_EQ(
      refusal_of_tensor(
          {.storage_size = integer(2'000'000), .shape = tuple({2'000'000}), .strides = tuple({1})})
          .substr(0, 16),
      "FILE: offset 293");
  for (const std::int64_t size : {5LL, 7LL, 2'000'000LL}) {
    const auto wrong = refusal_of_tensor(
        {.storage_size = integer(size), .shape = tuple({1}), .strides = tuple({1})});
    EXPECT_THAT(wrong,
        HasSubstr(concat("storage \"0\" has 24 bytes, not the ", 4 * size, " that data.pkl says")));
  }
  expect_refusals({{{.storage_size = integer(-1)}, "a storage's size is -1"},
      {{.storage_size = integer(1LL << 62)}, "a storage's size is 4611686018427387904"},
      {{.storage_size = text("6")}, "a storage's size is a text"}});
}

TEST(TorchRefusal, ViewsMustStayWithinTheirStorage) {
  const std::string beyond = "reaches beyond the 6 elements of its storage \"0\"";
  expect_refusals({{{.offset = integer(1)}, beyond}, {{.strides = tuple({4, 1})}, beyond},
      {{.shape = tuple({7}), .strides = tuple({1})}, beyond},
      {{.offset = integer(7), .shape = tuple({0}), .strides = tuple({1})}, beyond},
      {{.offset = integer(INT64_MAX), .shape = tuple({1}), .strides = tuple({1})}, beyond},
      {{.strides = tuple({INT64_MAX, INT64_MAX})}, beyond},
      {{.strides = tuple({INT64_MAX, 1})}, beyond},
      // Together 2^64 + 5.
      {{.shape = tuple({2, 2, 2}), .strides = tuple({INT64_MAX, INT64_MAX, 7})}, beyond}});
  expect_read(dict_of(tensor({.offset = integer(6), .shape = tuple({0}), .strides = tuple({1})})));
  expect_read(dict_of(tensor({.shape = tuple({1, 3}), .strides = tuple({INT64_MAX, 2})})));
}

TEST(TorchRefusal, OffsetsShapesAndStridesMustBePossible) {
  const std::vector<std::int64_t> many(65, 1);
  expect_refusals({{{.offset = integer(-1)}, "a tensor's offset is the negative number -1"},
      {{.shape = tuple({-2, 3})}, "a tensor's shape has the negative number -2"},
      {{.strides = tuple({-3, 1})}, "a tensor's strides has the negative number -3"},
      {{.strides = tuple({1})}, "float32 of shape (2, 3), has 1 strides"},
      {{.shape = tuple({1LL << 32, 1LL << 32}), .strides = tuple({0, 0})}, "has too many elements"},
      {{.shape = tuple(many), .strides = tuple(many)},
          "float32 of shape (65 dimensions), has too many elements"},
      // Four bytes that stand for 4 TB.
      {{.shape = tuple({1LL << 40}), .strides = tuple({0})},
          "repeats or reorders its storage and is much larger than the file; in Python, save "
          "tensor.contiguous()"}});
}

TEST(TorchRefusal, CopiesOfAllViewsTogetherAreBounded) {
  // 48 MiB each; what the copies may need beyond the file is 64 MiB.
  const std::string copy = tensor({.shape = tuple({12 << 20}), .strides = tuple({0})});
  const auto bytes = torch_bytes(pickle_of("](" + copy + copy + "e"), kElements);
  EXPECT_THAT(testing::message_of<DataError>([&] { parse_torch_file(bytes, "FILE"); }),
      HasSubstr("is much larger than the file"));
  EXPECT_NO_THROW(parse_torch_file(torch_bytes(pickle_of(copy), kElements), "FILE"));
}

TEST(TorchRefusal, TensorsAreMadeOfTheRightKinds) {
  expect_refusals({{{.offset = "N"}, "a tensor's offset is None"},
      {{.shape = "]"}, "a tensor's shape is a list"},
      {{.strides = "(" + text("1") + "\x85t"}, "a tensor's strides is a tuple"},
      {{.requires_grad = "K\x01"}, "requires_grad is an integer"},
      {{.hooks = "N"}, "a tensor's hooks is None"},
      {{.hooks = "}" + text("k") + "Ns"}, "a tensor has backward hooks"},
      {{.more = "}" + text("conj") + "\x88s"}, "a tensor has metadata (conj, neg)"},
      {{.more = "NN"}, "_rebuild_tensor_v2 is given 8 values"},
      {{.hooks = ""}, "_rebuild_tensor_v2 is given 5 values"},
      {{.storage_type = name("torch", "float32")}, "\"torch float32\" is not a type of storage"},
      {{.storage_type = name("torch.storage", "UntypedStorage"), .storage_size = integer(24)},
          "a tensor's type is not said"}});
  expect_read(dict_of(tensor({.more = "N"})));
  expect_refusals_of_values({{text("x") + "Q", "what a callable is given is a text"},
      {"(" + text("module") + "NNNNtQ", "a persistent id is of the kind \"module\""}});
}

// Whatever is done with them, they are their names.
TEST(TorchRefusal, OtherCallablesAreNamed) {
  const auto other = [](const std::string& made) {
    const auto bytes = torch_bytes(dict_of(made), kElements);
    const TorchFile file = parse_torch_file(bytes, "FILE");
    return std::get<TorchOther>(std::get<TorchDict>(file.value.content).items[0].value.content)
        .what;
  };
  for (const auto& [module, function] :
      std::vector<std::pair<std::string, std::string>>{{"os", "system"}, {"builtins", "eval"},
          {"torch._utils", "_rebuild_qtensor"}, {"torch._utils", "_rebuild_sparse_tensor"},
          {"torch._utils", "_rebuild_parameter_with_state"}, {"torch", "device"}, {"torch", "Size"},
          {"__builtin__", "set"}, {"collections", "Counter"},
          {"collections", "OrderedDict.fromkeys"}}) {
    const std::string known = name(module, function), dotted = module + '.' + function;
    EXPECT_EQ(other(known), dotted);
    EXPECT_EQ(other(text(module) + text(function) + "\x93"), dotted);
    EXPECT_EQ(other(known + ")R"), dotted) << "called";
    EXPECT_EQ(other(known + ")\x81}b"), dotted) << "made, with attributes";
    EXPECT_EQ(other(known + ")}\x92"), dotted) << "made by names";
    EXPECT_EQ(other(known + ")R(NNu"), dotted) << "with entries";
    EXPECT_EQ(other(known + ")RNa(NNe"), dotted) << "with items";
  }
  EXPECT_EQ(other(name("torch", "float32")), "torch.float32");
  EXPECT_EQ(other("\x8f(NN\x90"), "set");
  EXPECT_EQ(other("(NN\x91"), "set");
  EXPECT_EQ(other("C\x02xy"), "bytes");
  expect_refusals_of_values({{text("f") + ")R", "what is called is a text"},
      {name("collections", "OrderedDict") + "]\x85R", "OrderedDict is given 1 values"},
      {"N" + text("x") + "\x93", "a name is made of None and a text"}});
}

std::string module_of(const std::string& type, const std::string& attributes) {
  return name(type, "Module") + ")\x81" + attributes + "b";
}

// By C++'s torch::save() of a module.
TEST(TorchRefusal, ModulesOfCppAreDictsOfWhatTheyHave) {
  const std::string empty = module_of("__torch__.___torch_mangle_12", "}");
  const std::string inner =
      module_of("__torch__.___torch_mangle_0", "}(" + text("weight") + tensor() + "u");
  const auto bytes = torch_bytes(
      pickle_of(module_of("__torch__", "}(" + text("0") + inner + text("1") + empty + "u")),
      kElements);
  const TorchFile file = parse_torch_file(bytes, "FILE");
  const TensorFile read = tensors_of(file);
  ASSERT_EQ(read.entries().size(), 1U);
  EXPECT_EQ(read.entries()[0].name, "0.weight");
}

TEST(TorchRefusal, ObjectsThatAreNoModulesOfCpp) {
  const std::string module = name("__torch__", "Module");
  expect_refusals_of_values({{name("__torch__.net", "Net") + ")\x81}b",
                                 "TorchScript of \"__torch__.net Net\", which holds code: in "
                                 "Python, torch.save(torch.jit.load(...).state_dict())"},
      {name("__torch__.___torch_mangle_x", "Module") + ")\x81", "TorchScript"},
      {module + "]\x85\x81", "a module is given 1 values"},
      {module + ")\x81]b", "attributes (a list) are set on a dict"}});
}

// Python would refuse them, also where the value that has them is not asked for.
TEST(TorchRefusal, WhatPythonCannotMake) {
  const std::string storage = name("torch", "FloatStorage");
  expect_refusals_of_values({{"}}Ns", "a dict's key is a dict"}, {"}]Ns", "a dict's key is a list"},
      {storage + ")R", "\"torch FloatStorage\" is called, but is not a function"},
      {storage + text("a") + "Ns", "entries are put into the name \"torch FloatStorage\""}});
}

// Each attribute counts again, however often one dict is given.
TEST(TorchRefusal, ModulesMayNotRepeatADictWithoutEnd) {
  std::string items = "}q\x01(";
  for (int i = 0; i < 1000; ++i) items += text(std::to_string(i)) + "N";
  std::string many = "](" + items + "u";
  for (int i = 0; i < 5000; ++i) many += module_of("__torch__", "h\x01");
  EXPECT_THAT(refusal(dict_of(many + "e")), HasSubstr("more than 4194304 values"));
}

TEST(TorchRefusal, StoragesMustBeThere) {
  EXPECT_THAT(
      refusal_of_bytes(testing::zip_bytes({{.name = "x/data.pkl", .content = dict_of(tensor())},
          {.name = "x/version", .content = "3\n"}})),
      HasSubstr("the file has no storage \"0\""));
}

TEST(TorchRefusal, ArchivesOfAnotherKind) {
  const ZipPart pickle{.name = "x/data.pkl", .content = dict_of("N")};
  const ZipPart version{.name = "x/version", .content = "3\n"};
  const auto with = [&](const ZipPart& other) {
    return refusal_of_bytes(testing::zip_bytes({pickle, version, other}));
  };
  EXPECT_NO_THROW(
      parse_torch_file(testing::zip_bytes({pickle, version, {.name = "x/more"}}), "FILE"));
  EXPECT_NO_THROW(parse_torch_file(
      testing::zip_bytes({pickle, version, {.name = "x/code/a.py", .method = 8}}), "FILE"));
  EXPECT_THAT(with({.name = "x/data/0", .content = "x", .method = 8}),
      HasSubstr("\"x/data/0\" is compressed (method 8): packed again"));
  EXPECT_THAT(with({.name = "x/byteorder", .content = "big"}),
      HasSubstr("the byte order is \"big\"; only little-endian files are read"));
  EXPECT_THAT(with({.name = "y/data/0"}), HasSubstr("\"y/data/0\" is not in the folder x/"));
  EXPECT_THAT(refusal_of_bytes(testing::zip_bytes({pickle})), HasSubstr("has no version"));
  EXPECT_THAT(refusal_of_bytes(testing::zip_bytes({version})), HasSubstr("has no FOLDER/data.pkl"));
  for (const char* text : {"", "0", "11\n", "3\n\n", "x", "-3", "003"}) {
    EXPECT_THAT(
        refusal_of_bytes(testing::zip_bytes({pickle, {.name = "x/version", .content = text}})),
        HasSubstr("1 to 10 are known"))
        << text;
  }
  EXPECT_THAT(refusal_of_bytes({}), HasSubstr("FILE: offset 0: the file is empty"));
  EXPECT_THAT(refusal_of_bytes({'x', 'y'}), HasSubstr("neither a zip archive of torch.save nor"));
}

TEST(TorchRefusal, KeysComeOnceAndAreTextsOrIntegers) {
  EXPECT_THAT(refusal(pickle_of("}(" + text("a") + "N" + text("a") + "Nu")),
      HasSubstr("a dict has a key twice"));
  EXPECT_THAT(refusal(pickle_of("}(K\x01NK\x01Nu")), HasSubstr("a dict has a key twice"));
  for (const auto& [pickle, kind] : {std::pair("}NNs", "None"), std::pair("})Ns", "a tuple")}) {
    const auto odd = torch_bytes(pickle_of(pickle), kElements);
    EXPECT_EQ(std::get<TorchOther>(parse_torch_file(odd, "FILE").value.content).what,
        concat("a dict with a key that is ", kind));
  }
  const auto bytes = torch_bytes(
      pickle_of("}(" + text("a") + "}" + text("b") + tensor() + "s" + text("a.b") + tensor() + "u"),
      kElements);
  const TorchFile file = parse_torch_file(bytes, "FILE");
  EXPECT_THROW(tensors_of(file), DataError);
}

TEST(TorchRefusal, PicklesThatNoStateDictNeeds) {
  EXPECT_THAT(refusal(std::string((16 << 20) + 1, 'N')),
      HasSubstr("data.pkl has more than 16777216 bytes"));
}

TEST(TorchRefusal, L5ValuesThatAreNoTensorsAreBounded) {
  EXPECT_THAT(refusal(pickle_of("](" + std::string(3'000'000, 'N') + "e")),
      HasSubstr("a small pickle stands for too many values"));
  const auto bytes = torch_bytes(pickle_of("](" + std::string(500'000, 'N') + "e"), kElements);
  const TorchFile file = parse_torch_file(bytes, "FILE");
  testing::take_largest_allocation();
  EXPECT_EQ(testing::message_of<DataError>([&] { tensors_of(file); }),
      "FILE: no part holds tensors alone; 500000 values are not tensors: \"0\" (None), \"1\" "
      "(None), "
      "\"2\" (None) and 499997 more");
  EXPECT_LE(testing::take_largest_allocation(), 4096U);
}

TEST(TorchRefusal, SmallPicklesThatStandForMuch) {
  // Each level is twice the one before: 2^60 values in 300 bytes.
  std::string doubling = "]q\x01";
  for (char i = 2; i < 62; ++i)
    doubling += std::string("h") + char(i - 1) + "h" + char(i - 1) + "\x86q" + i;
  EXPECT_THAT(refusal(pickle_of("](" + doubling + "e")),
      HasSubstr("a small pickle stands for too many values"));
  EXPECT_THAT(refusal(pickle_of("]q\x01h\x01"
                                "a")),
      HasSubstr("a small pickle stands for too many values"));
  const auto nested = [](std::size_t depth) {
    // The blanks of a text make the pickle long enough for its values.
    return pickle_of("](" + text(std::string(1000, ' ')) + std::string(depth, ']') +
                     std::string(depth - 1, 'a') + "e");
  };
  expect_read(nested(100));
  EXPECT_THAT(refusal(nested(101)), HasSubstr("values lie deeper than 100 levels"));
  EXPECT_THAT(refusal(pickle_of(std::string(1'000'000, ']') + std::string(999'999, 'a'))),
      HasSubstr("values lie deeper than 100 levels"));
  std::string repeated = "](" + text(std::string(100'000, 'x')) + "q\x01";
  for (int i = 0; i < 1000; ++i) repeated += "h\x01";
  EXPECT_THAT(
      refusal(pickle_of(repeated + "e")), HasSubstr("a small pickle stands for too many values"));
}

}  // namespace
}  // namespace lockstep
