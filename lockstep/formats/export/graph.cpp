#include "lockstep/formats/export/graph.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/formats/export/argument.h"
#include "lockstep/formats/export/origin.h"

namespace lockstep::exported {
namespace {

using Json = nlohmann::json;

/// A walk over the nodes in the order in which they are called.
class GraphReader {
 public:
  GraphReader(const Json& graph, const std::string& where) : fields_(graph, where), where_(where) {}

  ExportedGraph read() {
    read_values();
    for (const Json& input : list_at(fields_, "inputs")) {
      const std::string where = concat(where_, ": input ", graph_.inputs.size());
      graph_.inputs.push_back(read_argument(input, where));
      if (!is_single(graph_.inputs.back())) refuse(where, "is neither a name nor a constant");
      make(graph_.inputs.back(), where);
    }
    for (const Json& node : list_at(fields_, "nodes")) {
      read_node(JsonFields(node, concat(where_, ": node ", graph_.nodes.size())));
    }
    for (const Json& output : list_at(fields_, "outputs")) {
      const std::string where = concat(where_, ": output ", graph_.outputs.size());
      graph_.outputs.push_back(read_argument(output, where));
      use(graph_.outputs.back(), where);
    }
    return std::move(graph_);
  }

 private:
  void read_values() {
    for (const auto& [name, tensor] : fields_.object("tensor_values").items().items()) {
      graph_.tensors[name] = read_tensor(tensor, concat(where_, ": value ", shown(name)));
    }
    for (const auto& [name, size] : fields_.object("sym_int_values").items().items()) {
      graph_.sizes[name] = read_size(size, concat(where_, ": value ", shown(name)));
    }
  }

  void read_node(const JsonFields& fields) {
    ExportedNode node{.target = fields.text("target")};
    const JsonFields metadata = fields.object("metadata");
    node.source = source_line(metadata.text_if("stack_trace").value_or(""));
    node.modules = modules_of(metadata.text_if("nn_module_stack").value_or(""));
    node.name = fields.text_if("name").value_or("");
    const std::string where = concat(where_, ": node ", shown(node.name), " (", shown(node.target),
        node.source.empty() ? "" : ", at ", node.source, ')');
    for (const Json& input : list_at(fields, "inputs"))
      node.inputs.push_back(read_input(input, concat(where, ": argument "), node.inputs.size()));
    for (const Json& output : list_at(fields, "outputs")) {
      node.outputs.push_back(read_argument(output, concat(where, ": output")));
      make_outputs(node.outputs.back(), concat(where, ": output"));
    }
    if (node.name.empty()) node.name = first_name(node.outputs);
    if (node.source.empty()) node.source = source_within(node);
    if (!node.name.empty() && !nodes_.insert(node.name).second)
      refuse(where, "two nodes have that name");
    graph_.nodes.push_back(std::move(node));
  }

  ExportedInput read_input(const Json& value, const std::string& where, std::size_t place) const {
    const JsonFields fields(value, where + std::to_string(place));
    ExportedInput input{.name = fields.text("name")};
    const std::string which =
        where + (input.name.empty() ? std::to_string(place) : shown(input.name));
    input.argument = read_argument(fields.object("arg").items(), which);
    use(input.argument, which);
    return input;
  }

  static bool is_single(const ExportedArgument& argument) {
    return !std::holds_alternative<ExportedList>(argument.content) &&
           !std::holds_alternative<ExportedSubgraph>(argument.content);
  }

  static std::string first_name(const ExportedList& outputs) {
    if (outputs.empty()) return "";
    if (const auto* name = std::get_if<ExportedName>(&outputs[0].content)) return name->name;
    const auto* list = std::get_if<ExportedList>(&outputs[0].content);
    return list == nullptr ? "" : first_name(*list);
  }

  void use(const ExportedArgument& argument, const std::string& where) const {
    if (const auto* list = std::get_if<ExportedList>(&argument.content)) {
      for (const ExportedArgument& item : *list) use(item, where);
    }
    const auto* const name = std::get_if<ExportedName>(&argument.content);
    if (name != nullptr && !names_.contains(name->name))
      refuse(where, "nothing before it makes ", shown(name->name));
  }

  // A node that runs a graph has no line of its own.
  static std::string source_within(const ExportedNode& node) {
    for (const ExportedInput& input : node.inputs) {
      const auto* const part = std::get_if<ExportedSubgraph>(&input.argument.content);
      if (part == nullptr) continue;
      for (const ExportedNode& inner : part->graph->nodes)
        if (!inner.source.empty()) return inner.source;
    }
    return "";
  }

  // Of a node: names, lists of names, None.
  void make_outputs(const ExportedArgument& argument, const std::string& where) {
    const auto* const list = std::get_if<ExportedList>(&argument.content);
    if (list != nullptr) {
      for (const ExportedArgument& item : *list) make_outputs(item, where);
    } else if (std::holds_alternative<std::monostate>(argument.content) ||
               std::holds_alternative<ExportedName>(argument.content)) {
      make(argument, where);
    } else {
      refuse(where, "is neither a name nor None");
    }
  }

  // What the file says of a value tells a tensor from a number, and none may be missing.
  void make(const ExportedArgument& argument, const std::string& where) {
    const auto* const name = std::get_if<ExportedName>(&argument.content);
    if (name == nullptr) return;
    if (!names_.insert(name->name).second) refuse(where, shown(name->name), " is made twice");
    const bool is_known =
        graph_.tensors.contains(name->name) || graph_.sizes.contains(name->name) ||
        is_listed("sym_float_values", name->name) || is_listed("sym_bool_values", name->name);
    if (!is_known) refuse(where, "the file does not say what ", shown(name->name), " is");
  }

  bool is_listed(const char* key, const std::string& name) const {
    return fields_.has(key) && fields_.object(key).items().contains(name);
  }

  JsonFields fields_;
  const std::string& where_;
  ExportedGraph graph_;
  std::set<std::string> names_;
  std::set<std::string> nodes_;
};

}  // namespace

ExportedGraph read_graph(const Json& graph, const std::string& where) {
  return GraphReader(graph, where).read();
}

}  // namespace lockstep::exported
