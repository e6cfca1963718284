#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/export/small_archive.h"
#include "tests/formats/mutated.h"
#include "tests/formats/weights/torch_bytes.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/export/exported_program.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::size_of;
using testing::SmallArchive;
using Json = nlohmann::json;

std::string refusal_of_bytes(const std::vector<std::uint8_t>& bytes, std::size_t more = 64 * 1024) {
  testing::take_largest_allocation();
  const std::string message =
      testing::message_of<DataError>([&] { parse_exported(bytes, "FILE"); });
  EXPECT_LE(testing::take_largest_allocation(), 32 * bytes.size() + more) << message;
  EXPECT_THAT(message, ::testing::StartsWith("FILE: "));
  return message;
}

template <typename Change>
std::string refusal(const Change& change) {
  SmallArchive archive;
  change(archive);
  return refusal_of_bytes(archive.bytes());
}

/// Returns the refusal of an archive whose program has another value at a place.
std::string refusal_with(const char* place, const Json& value) {
  return refusal([&](SmallArchive& archive) {
    const Json::json_pointer pointer(std::string("/graph_module") + place);
    archive.program[pointer] = value;
  });
}

std::string refusal_of_argument(const char* json) {
  return refusal([&](SmallArchive& archive) { archive.argument() = Json::parse(json); });
}

std::string refusal_of_part(const char* name, const std::string& content) {
  return refusal([&](SmallArchive& archive) { archive.parts[name] = content; });
}

std::string refusal_of_meta(const char* key, const Json& value) {
  return refusal([&](SmallArchive& archive) { archive.weight()["tensor_meta"][key] = value; });
}

const Json kTensorX{{"as_tensor", {{"name", "x"}}}};

TEST(ExportRefusal, TheUnchangedArchiveIsRead) {
  EXPECT_NO_THROW(parse_exported(SmallArchive().bytes(), "FILE"));
}

TEST(ExportRefusal, SaysFileProgramNodeArgumentAndLine) {
  EXPECT_EQ(refusal_of_argument(R"({"as_operator": "torch.ops.aten.add.Tensor"})"),
      "FILE: program model: node add (torch.ops.aten.add.Tensor, at net.py:7, in forward: return x "
      "+ self.w): argument other: the kind as_operator is not read");
}

TEST(ExportRefusal, ArgumentsThatAreNotUnderstood) {
  const std::pair<const char*, const char*> refusals[] = {
      {R"({"as_custom_obj": {"name": "a", "class_fqn": "b"}})", "as_custom_obj is not read"},
      {R"({"as_string_to_argument": {}})", "as_string_to_argument is not read"},
      {R"({"as_future": 1})", "as_future is not read"}, {R"({})", "is of no kind"},
      {R"({"as_int": 1, "as_bool": true})", "is both as_bool and as_int"},
      {R"({"as_int": 1.5})", "must be a whole number"},
      {R"({"as_int": 9223372036854775808})", "must be a whole number"},
      {R"({"as_ints": 1})", "must be a list"}, {R"({"as_ints": [true]})", "whole number"},
      {R"({"as_float": "1"})", "must be a number"}, {R"({"as_bool": 1})", "true or false"},
      {R"({"as_string": 1})", "must be a text"}, {R"({"as_none": false})", "must be true"},
      {R"({"as_complex": {"real": 1}})", "imag must be there"},
      {R"({"as_scalar_type": 9})", "type of elements with the number 9"},
      {R"({"as_scalar_type": 0})", "type of elements with the number 0"},
      {R"({"as_memory_format": 0})", "a memory format with the number 0"},
      {R"({"as_memory_format": 5})", "a memory format with the number 5"},
      {R"({"as_layout": 8})", "a layout with the number 8"},
      {R"({"as_device": {"type": 1}})", "type must be a text"},
      {R"({"as_sym_int": {"as_string": "a"}})", "as_string is not read"},
      {R"({"as_sym_int": {"as_name": 1}})", "must be a name"},
      {R"({"as_optional_tensors": [{"as_int": 1}]})", "as_int is not read"},
      {R"({"as_tensor": {"name": "y"}})", "nothing before it makes y"},
      {R"({"as_tensors": [{"name": "add"}]})", "nothing before it makes add"}};
  for (const auto& [json, reason] : refusals) {
    const std::string message = refusal_of_argument(json);
    EXPECT_THAT(message, HasSubstr(reason)) << json;
    EXPECT_THAT(message, HasSubstr("argument other")) << json;
  }
}

TEST(ExportRefusal, NamesAreMadeOnce) {
  EXPECT_THAT(refusal_with("/graph/inputs/1/as_tensor/name", "p_w"),
      HasSubstr("input 1: p_w is made twice"));
  EXPECT_THAT(refusal_with("/graph/nodes/0/outputs/0/as_tensor/name", "x"),
      HasSubstr("output: x is made twice"));
  EXPECT_THAT(refusal_with("/graph/nodes/0/outputs/0/as_tensor/name", "y"),
      HasSubstr("does not say what y is"));
  EXPECT_THAT(refusal_with("/graph/nodes/0/outputs/0", {{"as_int", 1}}),
      HasSubstr("is neither a name nor None"));
  EXPECT_THAT(refusal_with("/graph/inputs/1", {{"as_ints", {1}}}),
      HasSubstr("is neither a name nor a constant"));
  EXPECT_THAT(refusal_with("/graph/outputs/0/as_tensor/name", "y"),
      HasSubstr("output 0: nothing before it makes y"));
  EXPECT_THAT(refusal([](SmallArchive& archive) {
    Json& nodes = archive.program["/graph_module/graph/nodes"_json_pointer];
    nodes.push_back(nodes[0]);
    nodes[1]["outputs"] = Json::array();
  }),
      HasSubstr("two nodes have that name"));
}

TEST(ExportRefusal, GraphsInGraphsHaveNamesOfTheirOwn) {
  EXPECT_THAT(refusal([](SmallArchive& archive) {
    Json inner = archive.program["graph_module"]["graph"];
    inner["inputs"] = Json::array({kTensorX});
    archive.argument() = {{"as_graph", {{"name", "part"}, {"graph", inner}}}};
  }),
      HasSubstr("argument other, graph part: node add (torch.ops.aten.add.Tensor, at net.py:7, in "
                "forward: return x + self.w): argument other: nothing before it makes p_w"));
}

TEST(ExportRefusal, GraphsAreNotNestedWithoutEnd) {
  const auto nested = [](SmallArchive& archive) {
    const Json graph = archive.program["graph_module"]["graph"];
    Json inner = graph;
    for (int i = 0; i < 20; ++i) {
      Json outer = graph;
      outer["nodes"][0]["inputs"][1]["arg"] = {{"as_graph", {{"name", "g"}, {"graph", inner}}}};
      inner = outer;
    }
    archive.program["graph_module"]["graph"] = inner;
  };
  EXPECT_THAT(refusal(nested), HasSubstr("more than 128 objects and lists within each other"));
  EXPECT_THAT(refusal_of_part("models/model.json", std::string(1'000'000, '[')),
      HasSubstr("more than 128 objects and lists within each other"));
}

TEST(ExportRefusal, TensorsThatAreNotPlain) {
  EXPECT_THAT(refusal_with("/graph/tensor_values/x/layout", 1),
      HasSubstr("value x: a tensor that is sparse or packed"));
  EXPECT_THAT(refusal_with("/graph/tensor_values/x/sizes/0", size_of(-1)),
      HasSubstr("value x: a tensor with the size -1"));
  EXPECT_THAT(refusal_with("/graph/tensor_values/x/sizes/0", {{"as_float", 1}}),
      HasSubstr("a size of the kind as_float"));
}

TEST(ExportRefusal, OtherSchemas) {
  EXPECT_EQ(refusal([](SmallArchive& archive) {
    archive.program["schema_version"]["major"] = 9;
    archive.program["torch_version"] = "3.0";
  }),
      "FILE: program model: is of schema 9, written by PyTorch 3.0; only schema 8 is read: export "
      "the model again with PyTorch 2.11 to 2.15");
}

TEST(ExportRefusal, OtherArchives) {
  EXPECT_THAT(refusal_of_part("archive_format", "pt3"),
      HasSubstr("archive_format is \"pt3\", but only \"pt2\" is read"));
  EXPECT_THAT(refusal_of_part("archive_version", "1"), HasSubstr("archive_version is \"1\""));
  EXPECT_THAT(refusal_of_part("byteorder", "big"), HasSubstr("on a little-endian machine"));
  const auto without = [](const char* part) {
    return refusal([&](SmallArchive& archive) { archive.parts.erase(part); });
  };
  EXPECT_THAT(without("archive_version"), HasSubstr("FILE: has no \"archive_version\""));
  EXPECT_THAT(without("archive_format"), HasSubstr("not of torch.export"));
  EXPECT_THAT(without("data/weights/weight_0"), HasSubstr("has no \"data/weights/weight_0\""));
}

TEST(ExportRefusal, OtherFilesOfPyTorch) {
  const auto with = [](const char* name) {
    return refusal_of_bytes(testing::zip_bytes({{.name = name}}));
  };
  EXPECT_THAT(with("serialized_exported_program.json"), HasSubstr("before PyTorch 2.8: export"));
  EXPECT_THAT(with("net/constants.pkl"), HasSubstr("TorchScript"));
  EXPECT_THAT(with("net/data.pkl"), HasSubstr("weights without a program"));
  EXPECT_THAT(refusal_of_bytes({'{', '}'}), HasSubstr("offset 0: no zip archive"));
  EXPECT_THAT(refusal_of_bytes({}), HasSubstr("offset 0: no zip archive"));
  const testing::ZipPart format{.name = "net/archive_format", .content = "pt2"};
  EXPECT_THAT(refusal_of_bytes(testing::zip_bytes({format, {.name = "other/a"}})),
      HasSubstr("\"other/a\" is not in the folder \"net/\""));
  EXPECT_THAT(refusal_of_bytes(
                  testing::zip_bytes({format, {.name = "net/a", .content = "x", .method = 8}})),
      HasSubstr("\"net/a\" is compressed (method 8): packed again"));
  EXPECT_THAT(
      refusal_of_bytes(testing::zip_bytes({format, {.name = "net/archive_version", .content = "0"},
          {.name = "net/byteorder", .content = "little"}})),
      HasSubstr("compiled for inference"));
}

TEST(ExportRefusal, DamagedParts) {
  auto bytes = SmallArchive().bytes();
  const std::string weight(24, 'w');
  const auto place = std::search(bytes.begin(), bytes.end(), weight.begin(), weight.end());
  *place = 'v';
  EXPECT_THAT(refusal_of_bytes(bytes), HasSubstr("the file is damaged"));
}

TEST(ExportRefusal, TensorsStayWithinTheirBytes) {
  EXPECT_THAT(refusal_of_meta("storage_offset", size_of(1)),
      HasSubstr(
          "tensor w of program model: float32 of shape (2, 3), reaches beyond the 24 bytes of "
          "data/weights/weight_0"));
  const Json huge = size_of(INT64_MAX);
  EXPECT_THAT(refusal_of_meta("strides", {huge, huge}), HasSubstr("reaches beyond"));
  EXPECT_THAT(refusal_of_meta("sizes", {huge, huge}), HasSubstr("has too many elements"));
  EXPECT_THAT(
      refusal_of_meta("strides", Json::array({size_of(1)})), HasSubstr("2 sizes, but 1 strides"));
  EXPECT_THAT(refusal_of_meta("strides", {size_of(-3), size_of(1)}), HasSubstr("is no number"));
  EXPECT_THAT(refusal_of_meta("storage_offset", {{"as_expr", {{"expr_str", "s0"}}}}),
      HasSubstr("is no number"));
  EXPECT_THAT(
      refusal_of_part("data/weights/weight_0", ""), HasSubstr("exported with fake tensors"));
}

TEST(ExportRefusal, ViewsThatRepeatTheirElementsWithoutEnd) {
  EXPECT_THAT(refusal([](SmallArchive& archive) {
    Json& meta = archive.weight()["tensor_meta"];
    meta["sizes"] = {size_of(1 << 15), size_of(1 << 15)};
    meta["strides"] = {size_of(0), size_of(0)};
  }),
      HasSubstr("is much larger than the file"));
}

// Each of them alone may take as much.
TEST(ExportRefusal, ManyPicklesThatRepeatTheirElements) {
  constexpr std::int64_t kElements = 1 << 23;
  const auto pickle = testing::torch_bytes(
      testing::pickle_of(testing::tensor(
          {.shape = testing::tuple({kElements, 1}), .strides = testing::tuple({0, 1})})),
      std::string(24, 'p'));
  SmallArchive archive;
  archive.parts["data/weights/pickle"] = std::string(pickle.begin(), pickle.end());
  for (const char* name : {"a", "b", "c"}) {
    Json& weight = archive.add_weight(name);
    weight["use_pickle"] = true;
    weight["path_name"] = "pickle";
  }
  EXPECT_THAT(refusal_of_bytes(archive.bytes(), 4 * kElements),
      HasSubstr("tensor c of program model: repeats or reorders elements"));
}

TEST(ExportRefusal, ParametersThatShareOnlySomeElements) {
  const auto sharing = [](std::int64_t offset, bool is_parameter) {
    return [=](SmallArchive& archive) {
      archive.parts["data/weights/weight_0"] = std::string(48, 'w');
      archive.weight()["is_param"] = is_parameter;
      Json& other = archive.add_weight("other");
      other["is_param"] = !is_parameter;
      other["tensor_meta"]["storage_offset"] = size_of(offset);
    };
  };
  for (const bool is_parameter : {false, true}) {
    EXPECT_THAT(refusal(sharing(5, is_parameter)),
        HasSubstr("tensor other of program model: shares elements with w without being the same"));
    SmallArchive archive;
    sharing(6, is_parameter)(archive);
    EXPECT_NO_THROW(parse_exported(archive.bytes(), "FILE"));
  }
  EXPECT_THAT(refusal([&](SmallArchive& archive) {
    sharing(5, true)(archive);
    // A buffer that is the parameter, and comes first.
    const Json same = archive.weight();
    Json& buffer = archive.add_weight("a");
    buffer = same;
    buffer["is_param"] = false;
  }),
      HasSubstr("shares elements with"));
}

TEST(ExportRefusal, WhatIsNoTensor) {
  EXPECT_THAT(refusal([](SmallArchive& archive) {
    archive.weight()["use_pickle"] = true;
    archive.weight()["tensor_meta"] = nullptr;
  }),
      HasSubstr("tensor w of program model: an object of Python or C++, which is not read"));
  EXPECT_THAT(refusal([](SmallArchive& archive) {
    const auto file = testing::torch_bytes(testing::pickle_of("N"));
    archive.parts["data/weights/weight_0"] = std::string(file.begin(), file.end());
    archive.weight()["use_pickle"] = true;
  }),
      HasSubstr("tensor w of program model: is pickled, and not a plain tensor"));
  EXPECT_THAT(
      refusal([](SmallArchive& archive) { archive.constants["config"]["w"] = archive.weight(); }),
      HasSubstr("is among the weights and the constants"));
}

TEST(ExportRefusal, TensorsAreThoseOfTheGraph) {
  EXPECT_THAT(refusal_with("/graph/tensor_values/p_w/dtype", 8),
      HasSubstr("input 0: w is float32 of shape (2, 3), which is not what the graph expects"));
  EXPECT_THAT(refusal_with("/graph/tensor_values/p_w/sizes", Json::array({size_of(6)})),
      HasSubstr("which is not what the graph expects"));
  EXPECT_THAT(refusal_with("/graph/tensor_values/p_w/sizes/0", {{"as_expr", {{"expr_str", "s0"}}}}),
      HasSubstr("which is not what the graph expects"));
}

TEST(ExportRefusal, SignaturesThatDoNotFit) {
  EXPECT_THAT(refusal_with("/signature/input_specs", Json::array()),
      HasSubstr("the graph has 2 inputs, but the signature 0"));
  EXPECT_THAT(refusal_with("/signature/output_specs", Json::array()),
      HasSubstr("the graph has 1 outputs, but the signature 0"));
  EXPECT_THAT(refusal_with("/signature/input_specs/0/parameter/arg/name", "x"),
      HasSubstr("input 0: is not the one of the graph"));
  EXPECT_THAT(refusal_with("/signature/input_specs/0/parameter/parameter_name", "v"),
      HasSubstr("input 0: the file has no tensor v"));
  for (const char* name : {"", ".w", "w.", "a..b"}) {
    EXPECT_THAT(refusal_with("/signature/input_specs/0/parameter/parameter_name", name),
        HasSubstr("input 0: no name: "));
  }
  EXPECT_THAT(
      refusal_with("/signature/input_specs/1",
          {{"buffer", {{"arg", {{"name", "x"}}}, {"buffer_name", "w"}, {"persistent", true}}}}),
      HasSubstr("input 1: w is an input twice"));
  EXPECT_THAT(refusal_with("/signature/input_specs/1", {{"token", {{"arg", {{"name", "x"}}}}}}),
      HasSubstr("input 1: the kind token is not read"));
  EXPECT_THAT(refusal_with("/signature/input_specs/1",
                  {{"constant_input", {{"name", "x"}, {"value", {{"as_int", 1}}}}}}),
      HasSubstr("input 1: is a constant, but a value in the graph"));
  EXPECT_THAT(
      refusal_with("/signature/output_specs/0",
          {{"gradient_to_parameter", {{"arg", {{"name", "add"}}}, {"parameter_name", "w"}}}}),
      HasSubstr("output 0: the kind gradient_to_parameter is not read"));
}

TEST(ExportRefusal, ChangesOfWhatIsNotThere) {
  for (const std::string kind : {"buffer", "user_input"}) {
    const Json change{{"arg", {{"name", "add"}}}, {kind + "_name", "w"}};
    EXPECT_THAT(refusal_with("/signature/output_specs/0", {{kind + "_mutation", change}}),
        HasSubstr("output 0: changes w, which is no input"));
  }
}

TEST(ExportRefusal, NestingThatDoesNotFit) {
  const char* const out_spec = "/module_call_graph/0/signature/out_spec";
  const std::string leaf = R"({"type": null, "context": null, "children_spec": []})";
  EXPECT_THAT(refusal_with(out_spec, R"([1, {"type": "builtins.tuple", "children_spec": []}])"),
      HasSubstr("outputs of the user: 1 in the signature, but 0 in the nesting"));
  EXPECT_THAT(refusal_with(out_spec, "[2, " + leaf + "]"), HasSubstr("is not in version 1"));
  EXPECT_THAT(refusal_with(out_spec, "[1"), HasSubstr("is not JSON"));
  EXPECT_THAT(refusal_with("/module_call_graph", Json::array()),
      HasSubstr("module_call_graph lacks the model itself"));
  const std::string twice = R"([1, {"type": "builtins.dict", "context": "[\"a\", \"a\"]", )" +
                            (R"("children_spec": [)" + leaf) + ", " + leaf + "]}]";
  EXPECT_THAT(refusal_with(out_spec, twice), HasSubstr("two inputs or outputs have the name a"));
  // Five thousand names of 4 KB in a file of 300 KB, of leaves, and of lists without any.
  const std::string empty = R"({"type": "builtins.list", "children_spec": []})";
  for (const std::string& child : {leaf, empty}) {
    std::string many = child;
    for (int i = 0; i < 5000; ++i) many += ", " + child;
    const std::string key(4096, 'k');
    EXPECT_THAT(refusal_with(out_spec,
                    R"([1, {"type": "builtins.dict", "context": "[\")" + key +
                        R"(\"]", "children_spec": [{"type": "builtins.list", "children_spec": [)" +
                        many + "]}]}]"),
        HasSubstr("names of inputs or outputs of more than 16777216 bytes"));
  }
}

TEST(ExportRefusal, SizesOfJson) {
  EXPECT_THAT(refusal_of_part("models/model.json", std::string((64 << 20) + 1, ' ')),
      HasSubstr("at most 67108864 belong here"));
}

}  // namespace
}  // namespace lockstep
