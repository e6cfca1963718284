#include "lockstep/formats/export/exported_program.h"

#include <cmath>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "tests/formats/export/small_archive.h"
#include "tests/formats/weights/torch_bytes.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::node_of;
using testing::python_archive;
using testing::SmallArchive;
using Input = ExportedInputSpec::Kind;
using Json = nlohmann::json;

template <typename T>
const T& as(const ExportedArgument& argument) {
  return std::get<T>(argument.content);
}

std::string name_of(const ExportedArgument& argument) { return as<ExportedName>(argument).name; }

template <typename T>
std::vector<T> values_of(const TensorFile& file, const char* name) {
  const TensorEntry& entry = *file.find(name);
  std::vector<T> values(entry.bytes.size() / sizeof(T));
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return values;
}

ExportedProgram only_program(const char* file) {
  ExportedArchive archive = read_exported(python_archive(file));
  EXPECT_EQ(archive.programs.size(), 1U);
  return std::move(archive.programs.at(0));
}

TEST(ExportedProgram, OfAConvolutionalNet) {
  const ExportedProgram program = only_program("conv.pt2");
  EXPECT_EQ(program.name, "model");
  EXPECT_THAT(program.input_names, ElementsAre("x"));
  EXPECT_THAT(program.output_names, ElementsAre("output"));
  EXPECT_EQ(program.inputs.size(), 10U);
  EXPECT_EQ(program.inputs[0].kind, Input::kParameter);
  EXPECT_EQ(program.inputs[0].target, "conv.weight");
  EXPECT_EQ(program.inputs[6].kind, Input::kBuffer);
  EXPECT_EQ(program.inputs[6].target, "norm.running_mean");
  EXPECT_TRUE(program.inputs[6].persistent);
  EXPECT_EQ(program.inputs[9].kind, Input::kUser);
  EXPECT_THAT(values_of<float>(program.tensors, "norm.running_var"), ElementsAre(1, 1));
  EXPECT_THAT(values_of<std::int64_t>(program.tensors, "norm.num_batches_tracked"), ElementsAre(0));

  const ExportedNode& norm = node_of(program.graph, "batch_norm");
  EXPECT_EQ(norm.target, "torch.ops.aten.batch_norm.default");
  EXPECT_EQ(norm.inputs[5].name, "training");
  EXPECT_TRUE(as<bool>(norm.inputs[5].argument));
  EXPECT_EQ(as<double>(norm.inputs[6].argument), 0.1);
  EXPECT_EQ(name_of(norm.outputs.at(0)), "batch_norm");
  EXPECT_EQ(norm.source, "net.py:28, in forward: h = torch.relu(self.norm(self.conv(x)))");
  EXPECT_EQ(norm.modules.at(0).path, "");
  EXPECT_EQ(norm.modules.at(1).path, "norm");
  EXPECT_EQ(norm.modules.at(1).type, "torch.nn.modules.batchnorm.BatchNorm2d");
}

TEST(ExportedProgram, WithSizesThatVary) {
  const ExportedProgram program = only_program("modes.pt2");
  const ExportedTensor& x = program.graph.tensors.at("x");
  EXPECT_EQ(x.type, ElementType::kFloat32);
  EXPECT_EQ(x.shape.at(0).expression, "s77");
  EXPECT_EQ(x.shape.at(2).number, 4);
  EXPECT_EQ(program.graph.sizes.at("mul_1").expression, "4*s27*s77");
  EXPECT_EQ(program.ranges.at("s77").least, 1);
  EXPECT_EQ(program.ranges.at("s77").most, std::nullopt);
  EXPECT_EQ(program.ranges.at("s27").most, 64);
  const ExportedNode& reshape = node_of(program.graph, "reshape");
  EXPECT_EQ(name_of(as<ExportedList>(reshape.inputs[1].argument).at(0)), "mul_1");
}

TEST(ExportedProgram, WithGraphsInTheGraph) {
  const ExportedProgram program = only_program("modes.pt2");
  const ExportedNode& autocast = node_of(program.graph, "linear");
  EXPECT_EQ(autocast.target, "torch.ops.higher_order.wrap_with_autocast");
  EXPECT_EQ(as<std::string>(autocast.inputs[0].argument), "cpu");
  EXPECT_EQ(as<ElementType>(autocast.inputs[1].argument), ElementType::kBfloat16);
  const ExportedSubgraph& part = as<ExportedSubgraph>(autocast.inputs[4].argument);
  EXPECT_EQ(part.graph->nodes.at(0).target, "torch.ops.aten.linear.default");
  EXPECT_EQ(part.graph->inputs.size(), 2U);
  EXPECT_EQ(part.graph->tensors.at("linear").type, ElementType::kBfloat16);
  // A node that runs a graph has no line in the file.
  EXPECT_EQ(autocast.source, "net.py:59, in forward: y = self.proj(x)");
}

TEST(ExportedProgram, WithTensorsThatAreNoWeights) {
  const ExportedProgram program = only_program("modes.pt2");
  EXPECT_EQ(program.inputs[1].kind, Input::kBuffer);
  EXPECT_FALSE(program.inputs[1].persistent);
  EXPECT_EQ(program.inputs[2].kind, Input::kConstant);
  EXPECT_THAT(values_of<std::int64_t>(program.tensors, "places"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(values_of<float>(program.tensors, "lifted_tensor_0"), ElementsAre(1, 2));
}

TEST(ExportedProgram, OfTwoWaysThroughOneModel) {
  const ExportedArchive archive = read_exported(python_archive("programs.pt2"));
  ASSERT_EQ(archive.programs.size(), 2U);
  for (const ExportedProgram& program : archive.programs) {
    const ExportedNode& dropout = node_of(program.graph, "dropout");
    EXPECT_EQ(as<bool>(dropout.inputs[2].argument), program.name == "train") << program.name;
    EXPECT_THAT(program.output_names, ElementsAre("logits", "hidden.0"));
  }
  EXPECT_EQ(archive.programs[0].name, "train");
  EXPECT_EQ(archive.programs[1].name, "eval");
}

TEST(ExportedProgram, WithTiedWeightsHasTheirBytesOnce) {
  const ExportedArchive archive = read_exported(python_archive("programs.pt2"));
  const TensorFile& tensors = archive.programs[0].tensors;
  EXPECT_EQ(tensors.find("embed.weight")->bytes.data(), tensors.find("head.weight")->bytes.data());
}

TEST(ExportedProgram, NamesWhatIsNested) {
  const ExportedProgram program = only_program("nested.pt2");
  EXPECT_THAT(program.input_names, ElementsAre("batch.x", "batch.unused", "rest_0", "extra"));
  EXPECT_THAT(
      program.output_names, ElementsAre("0.first", "0.second", "1.x", "1.z", "2.n", "2.3.0"));
  EXPECT_EQ(program.inputs[5].kind, Input::kConstantValue);
  EXPECT_EQ(as<double>(program.inputs[5].value), 3.0);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(program.outputs[4].value.content));
  const ExportedNode& split = node_of(program.graph, "split");
  EXPECT_EQ(name_of(as<ExportedList>(split.outputs.at(0)).at(1)), "getitem_1");
}

TEST(ExportedProgram, LaysTensorsOutRowMajor) {
  const ExportedProgram program = only_program("nested.pt2");
  std::vector<float> counted(16);
  for (std::size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<float>(i);
  EXPECT_EQ(values_of<float>(program.tensors, "last"), counted);
  EXPECT_THAT(values_of<float>(program.tensors, "view"), ElementsAre(1, 4, 2, 5));
}

ExportedProgram read_small(const SmallArchive& archive) {
  const auto bytes = archive.bytes();
  return std::move(parse_exported(bytes, "FILE").programs.at(0));
}

template <typename T>
T argument_read(const char* json) {
  SmallArchive archive;
  archive.argument() = Json::parse(json);
  return as<T>(read_small(archive).graph.nodes.at(0).inputs[1].argument);
}

TEST(ExportedArgument, OfEachKind) {
  EXPECT_EQ(argument_read<std::int64_t>(R"({"as_int": -9223372036854775808})"), INT64_MIN);
  EXPECT_EQ(argument_read<double>(R"({"as_float": 2})"), 2.0);
  EXPECT_EQ(argument_read<double>(R"({"as_float": "-Infinity"})"), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(argument_read<double>(R"({"as_float": "NaN"})")));
  EXPECT_EQ(argument_read<std::complex<double>>(R"({"as_complex": {"real": 1, "imag": -2}})"),
      std::complex<double>(1, -2));
  EXPECT_EQ(argument_read<ElementType>(R"({"as_scalar_type": 13})"), ElementType::kBfloat16);
  EXPECT_EQ(argument_read<ExportedMemoryFormat>(R"({"as_memory_format": 2})"),
      ExportedMemoryFormat::kChannelsLast);
  EXPECT_EQ(argument_read<ExportedLayout>(R"({"as_layout": 7})").name, "strided");
  EXPECT_EQ(argument_read<ExportedDevice>(R"({"as_device": {"type": "cuda", "index": 1}})").name,
      "cuda:1");
  EXPECT_EQ(argument_read<ExportedDevice>(R"({"as_device": {"type": "cpu", "index": null}})").name,
      "cpu");
  EXPECT_EQ(argument_read<ExportedName>(R"({"as_sym_int": {"as_name": "x"}})").name, "x");
  EXPECT_EQ(argument_read<std::int64_t>(R"({"as_sym_int": {"as_int": 5}})"), 5);
  argument_read<std::monostate>(R"({"as_none": true, "as_int": null})");
  argument_read<std::monostate>(R"({"as_optional_tensor": {"as_none": true}})");
}

TEST(ExportedArgument, OfListsThatMix) {
  const auto sizes =
      argument_read<ExportedList>(R"({"as_sym_ints": [{"as_name": "x"}, {"as_int": 3}]})");
  EXPECT_EQ(name_of(sizes.at(0)), "x");
  EXPECT_EQ(as<std::int64_t>(sizes.at(1)), 3);
  const auto tensors = argument_read<ExportedList>(
      R"({"as_optional_tensors": [{"as_none": true}, {"as_tensor": {"name": "x"}}]})");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(tensors.at(0).content));
  EXPECT_EQ(name_of(tensors.at(1)), "x");
  const auto lists = argument_read<ExportedList>(R"({"as_int_lists": [[1, 2], []]})");
  EXPECT_EQ(as<std::int64_t>(as<ExportedList>(lists.at(0)).at(1)), 2);
  EXPECT_TRUE(as<ExportedList>(lists.at(1)).empty());
}

TEST(ExportedProgram, TakesTheNameOfANodeWithoutOneFromItsOutput) {
  SmallArchive archive;
  archive.program["/graph_module/graph/nodes/0/name"_json_pointer] = nullptr;
  EXPECT_EQ(read_small(archive).graph.nodes[0].name, "add");
}

TEST(ExportedProgram, OfTrainingThatFunctionsChange) {
  SmallArchive archive;
  Json& outputs = archive.program["/graph_module/signature/output_specs"_json_pointer];
  const Json change{{"arg", {{"name", "add"}}}, {"parameter_name", "w"}};
  outputs = {{{"parameter_mutation", change}}};
  Json& call = archive.program["/graph_module/module_call_graph/0/signature"_json_pointer];
  call["out_spec"] = R"([1, {"type": "builtins.tuple", "context": "null", "children_spec": []}])";
  const ExportedProgram program = read_small(archive);
  EXPECT_EQ(program.outputs[0].kind, ExportedOutputSpec::Kind::kParameterMutation);
  EXPECT_EQ(program.outputs[0].target, "w");
  EXPECT_TRUE(program.output_names.empty());
}

// Python pickles tensors of subclasses; a plain one may come from there, too.
TEST(ExportedProgram, WithATensorInAPickle) {
  SmallArchive archive;
  const auto file =
      testing::torch_bytes(testing::pickle_of(testing::tensor()), std::string(24, 'p'));
  archive.parts["data/weights/weight_0"] = std::string(file.begin(), file.end());
  archive.weight()["use_pickle"] = true;
  const auto bytes = archive.bytes();
  const ExportedArchive read = parse_exported(bytes, "FILE");
  const TensorEntry& tensor = *read.programs[0].tensors.find("w");
  EXPECT_THAT(tensor.shape, ElementsAre(2, 3));
  EXPECT_EQ(tensor.bytes[0], 'p');
}

TEST(ExportedProgram, WithBuffersThatSharePartsOfTheirElements) {
  SmallArchive archive;
  archive.weight()["is_param"] = false;
  Json& other = archive.add_weight("other");
  other["tensor_meta"]["sizes"] = Json::array({testing::size_of(2)});
  other["tensor_meta"]["strides"] = Json::array({testing::size_of(3)});
  other["tensor_meta"]["storage_offset"] = testing::size_of(2);
  archive.parts["data/weights/weight_0"] = "0000111122223333444455556666";
  EXPECT_EQ(values_of<std::uint32_t>(read_small(archive).tensors, "other"),
      (std::vector<std::uint32_t>{0x32323232, 0x35353535}));
}

}  // namespace
}  // namespace lockstep
