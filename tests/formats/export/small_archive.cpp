#include "tests/formats/export/small_archive.h"

#include <algorithm>
#include <stdexcept>

#include "tests/formats/weights/zip_bytes.h"

namespace lockstep::testing {
namespace {

using Json = nlohmann::json;

Json argument_of_tensor(const char* name) { return {{"as_tensor", {{"name", name}}}}; }

Json tensor_meta() {
  return Json::parse(R"({"dtype": 7, "sizes": [{"as_int": 2}, {"as_int": 3}], "layout": 7,
      "requires_grad": true, "device": {"type": "cpu", "index": null},
      "strides": [{"as_int": 3}, {"as_int": 1}], "storage_offset": {"as_int": 0}})");
}

Json payload(const std::string& part) {
  return {{"path_name", part}, {"is_param", true}, {"use_pickle", false},
      {"tensor_meta", tensor_meta()}};
}

Json adding_node() {
  return {{"target", "torch.ops.aten.add.Tensor"}, {"name", "add"},
      {"inputs", {{{"name", "self"}, {"arg", argument_of_tensor("x")}, {"kind", 1}},
                     {{"name", "other"}, {"arg", argument_of_tensor("p_w")}, {"kind", 1}}}},
      {"outputs", {argument_of_tensor("add")}},
      {"metadata",
          {{"stack_trace", "File \"/home/me/net.py\", line 7, in forward\n    return x + self.w"},
              {"nn_module_stack", "L__self__,,net.Net"}}}};
}

Json graph() {
  return {{"inputs", {argument_of_tensor("p_w"), argument_of_tensor("x")}},
      {"outputs", {argument_of_tensor("add")}}, {"nodes", {adding_node()}},
      {"tensor_values", {{"p_w", tensor_meta()}, {"x", tensor_meta()}, {"add", tensor_meta()}}},
      {"sym_int_values", Json::object()}, {"sym_bool_values", Json::object()},
      {"sym_float_values", Json::object()}};
}

Json signature() {
  const Json parameter{{"arg", {{"name", "p_w"}}}, {"parameter_name", "w"}};
  return {{"input_specs",
              {{{"parameter", parameter}}, {{"user_input", {{"arg", argument_of_tensor("x")}}}}}},
      {"output_specs", {{{"user_output", {{"arg", argument_of_tensor("add")}}}}}}};
}

Json calls() {
  const char* const leaf = R"({"type": null, "context": null, "children_spec": []})";
  const std::string arguments =
      std::string(R"([1, {"type": "builtins.tuple", "context": "null", "children_spec": [)") +
      R"({"type": "builtins.tuple", "context": "null", "children_spec": [)" + leaf +
      R"(]}, {"type": "builtins.dict", "context": "[]", "children_spec": []}]}])";
  return {{{"fqn", ""},
      {"signature", {{"in_spec", arguments}, {"out_spec", std::string("[1, ") + leaf + "]"},
                        {"forward_arg_names", {"x"}}}}}};
}

}  // namespace

SmallArchive::SmallArchive()
    : program{{"schema_version", {{"major", 8}, {"minor", 17}}}, {"torch_version", "2.11.0"},
          {"range_constraints", Json::object()},
          {"graph_module",
              {{"graph", graph()}, {"signature", signature()}, {"module_call_graph", calls()}}}},
      weights{{"config", {{"w", payload("weight_0")}}}},
      constants{{"config", Json::object()}},
      parts{{"archive_format", "pt2"}, {"archive_version", "0"}, {"byteorder", "little"},
          {"data/weights/weight_0", std::string(24, 'w')}} {}

Json& SmallArchive::argument() {
  return program["graph_module"]["graph"]["nodes"][0]["inputs"][1]["arg"];
}

Json& SmallArchive::weight() { return weights["config"]["w"]; }

Json& SmallArchive::add_weight(const std::string& name) {
  return weights["config"][name] = Json(weight());
}

std::vector<std::uint8_t> SmallArchive::bytes() const {
  auto all = parts;
  all.emplace("models/model.json", program.dump());
  all.emplace("data/weights/model_weights_config.json", weights.dump());
  all.emplace("data/constants/model_constants_config.json", constants.dump());
  std::vector<ZipPart> zip;
  for (const auto& [name, content] : all)
    zip.push_back({.name = "net/" + name, .content = content});
  return zip_bytes(zip);
}

Json size_of(std::int64_t number) { return {{"as_int", number}}; }

std::filesystem::path python_archive(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_EXPORT_DATA) / name;
}

const ExportedNode& node_of(const ExportedGraph& graph, const std::string& name) {
  const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(),
      [&](const ExportedNode& known) { return known.name == name; });
  if (node == graph.nodes.end()) throw std::out_of_range("the graph has no node " + name);
  return *node;
}

}  // namespace lockstep::testing
