#include "lockstep/formats/export/tree.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lockstep/formats/export/argument.h"

namespace lockstep::exported {
namespace {

using Json = nlohmann::json;
using Texts = std::vector<std::string>;

// Each level of nesting is an object and a list.
constexpr JsonLimits kTreeLimits{.bytes = 8 << 20, .depth = 128};
constexpr std::size_t kMostNameBytes = 16 << 20;

/// A walk through a TreeSpec of torch.utils._pytree: nodes with a type, a context that says the
/// keys of their children, and leaves.
class Tree {
 public:
  /// `tuples` has the fields of named tuples.
  Tree(const JsonFields& tuples, const std::string& where) : tuples_(tuples), where_(where) {}

  /// Returns the root of a spec that torch.utils._pytree wrote.
  static Json parse(const std::string& text, const std::string& where) {
    Json spec = parse_strict_json(text, where, kTreeLimits);
    if (!spec.is_array() || spec.size() != 2 || spec[0] != 1)
      refuse(where, "the nesting of inputs and outputs is not in version 1");
    return std::move(spec[1]);
  }

  /// Gives each leaf below a node the keys on the way to it, joined by dots; `name` is the node's.
  void visit(const Json& tree, const std::string& name) {
    spend(name.size());
    const JsonFields fields(tree, where_);
    if (!fields.has("type")) {
      add(name);
      return;
    }
    const Json& children = list_at(fields, "children_spec");
    const Texts keys = keys_of(fields, children.size());
    for (std::size_t i = 0; i < children.size(); ++i)
      visit(children[i], name.empty() ? keys[i] : name + '.' + keys[i]);
  }

  Texts take_names() { return std::move(names_); }

 private:
  Texts keys_of(const JsonFields& node, std::size_t children) const {
    Texts keys;
    const std::string context = node.text_if("context").value_or("null");
    if (node.text("type") == "collections.namedtuple" && tuples_.has(context.c_str())) {
      keys = tuples_.object(context.c_str()).texts("field_names");
    } else {
      keys = keys_in(parse_strict_json(context, where_, kTreeLimits));
    }
    if (keys.size() == children) return keys;
    keys.clear();
    for (std::size_t i = 0; i < children; ++i) keys.push_back(std::to_string(i));
    return keys;
  }

  // Of a dict there is the list of its keys; of a data class a list of the fields that have a
  // value, and one of the others. Other types say something else, or nothing.
  static Texts keys_in(const Json& context, int depth = 2) {
    const bool is_defaultdict = context.is_object() && context.contains("dict_context");
    if (is_defaultdict && depth > 0) return keys_in(context["dict_context"], depth - 1);
    if (!context.is_array() || context.empty()) return {};
    if (context.size() == 2 && context[0].is_array() && depth > 0)
      return keys_in(context[0], depth - 1);
    Texts keys;
    for (const Json& key : context) {
      if (!key.is_string() && !key.is_number_integer()) return {};
      keys.push_back(key.is_string() ? key.get<std::string>() : key.dump());
    }
    return keys;
  }

  // A few long keys, each within all others, would need far more memory and time than the file's
  // size.
  void spend(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > kMostNameBytes)
      refuse(where_, "names of inputs or outputs of more than ", kMostNameBytes, " bytes");
  }

  void add(const std::string& name) {
    if (!known_.insert(name).second)
      refuse(where_, "two inputs or outputs have the name ", shown(name));
    names_.push_back(name);
  }

  const JsonFields& tuples_;
  const std::string& where_;
  Texts names_;
  std::set<std::string> known_;
  std::size_t bytes_ = 0;
};

// Arguments are a tuple, and a dict of those that are given by name.
Texts input_names(const JsonFields& signature, const JsonFields& tuples, const std::string& where) {
  const Json spec = Tree::parse(signature.text("in_spec"), where);
  const Json& parts = list_at(JsonFields(spec, where), "children_spec");
  if (parts.size() != 2) refuse(where, "the arguments are no tuple and dict");
  Texts names;
  if (signature.has("forward_arg_names")) names = signature.texts("forward_arg_names");
  Tree tree(tuples, where);
  const Json& arguments = list_at(JsonFields(parts[0], where), "children_spec");
  for (std::size_t i = 0; i < arguments.size(); ++i)
    tree.visit(arguments[i], i < names.size() ? names[i] : std::to_string(i));
  tree.visit(parts[1], "");
  return tree.take_names();
}

Texts output_names(
    const JsonFields& signature, const JsonFields& tuples, const std::string& where) {
  const Json spec = Tree::parse(signature.text("out_spec"), where);
  Tree tree(tuples, where);
  tree.visit(spec, JsonFields(spec, where).has("type") ? "" : "output");
  return tree.take_names();
}

}  // namespace

Names read_names(const Json& module, const std::string& where) {
  const JsonFields fields(module, where);
  const Json& calls = list_at(fields, "module_call_graph");
  const auto own = std::find_if(calls.begin(), calls.end(),
      [&](const Json& call) { return JsonFields(call, where).text("fqn").empty(); });
  if (own == calls.end()) refuse(where, "module_call_graph lacks the model itself");
  const JsonFields signature = JsonFields(*own, where).object("signature");
  const Json none = Json::object();
  constexpr const char* kTuples = "treespec_namedtuple_fields";
  const JsonFields tuples = fields.has(kTuples) ? fields.object(kTuples) : JsonFields(none, where);
  return {input_names(signature, tuples, where), output_names(signature, tuples, where)};
}

}  // namespace lockstep::exported
