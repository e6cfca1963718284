#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/core/enum_tag.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/exported/boxing.h"
#include "lockstep/nn/exported/fusion.h"
#include "lockstep/nn/exported/graph_parts.h"
#include "lockstep/nn/exported/shared_memory.h"
#include "lockstep/nn/exported/step_queries.h"
#include "lockstep/nn/exported/training_flag.h"
#include "lockstep/nn/weights.h"

namespace lockstep::nn::exported {
namespace {

using c10::IValue;

/// Turns exported nodes into steps.
class GraphBuilder {
 public:
  GraphBuilder(const ExportedGraph& from, const GraphSettings& settings, GraphNeeds& needs)
      : from_(from), settings_(settings), needs_(needs) {}

  GraphParts build() {
    for (const ExportedArgument& input : from_.inputs) {
      const auto* name = std::get_if<ExportedName>(&input.content);
      if (name != nullptr) {
        new_place(name->name);
      } else {
        ++graph_.values;
        graph_.bytes.push_back(0);
        graph_.is_number.push_back(true);
      }
    }
    graph_.inputs = graph_.values;
    for (const ExportedNode& node : from_.nodes) add(node);
    for (const ExportedArgument& output : from_.outputs) graph_.outputs.push_back(plain(output));
    keep_what_is_written();
    fuse(graph_);
    mark_last_uses();
    return std::move(graph_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    const std::string node = node_ == nullptr ? "its outputs" : text_of_node();
    throw DataError(concat(settings_.name, ": ", node, ": ", parts...));
  }

  std::string text_of_node() const {
    return concat("node ", printable(node_->name), " (", printable(node_->target), ")",
        node_->source.empty() ? "" : " of ", node_->source);
  }

  Place new_place(const std::string& name) {
    const auto place = static_cast<Place>(graph_.values++);
    if (!places_.emplace(name, place).second)
      refuse("a second value has the name ", printable(name));
    const auto tensor = from_.tensors.find(name);
    graph_.bytes.push_back(tensor == from_.tensors.end() ? 0 : memory_of(tensor->second));
    graph_.is_number.push_back(tensor == from_.tensors.end());
    return place;
  }

  static double memory_of(const ExportedTensor& tensor) {
    auto bytes = static_cast<double>(bytes_of(tensor.type));
    for (const ExportedSize& size : tensor.shape)
      bytes *= static_cast<double>(size.number.value_or(1));
    return bytes;
  }

  void add(const ExportedNode& node) {
    node_ = &node;
    Step step;
    step.text = text_of_node();
    for (const lockstep::ExportedModule& module : node.modules) step.modules.push_back(module.path);
    if (const auto* function = find_number_function(node.target)) {
      add_numbers(step, *function);
    } else if (node.target.starts_with(kHigherOrder)) {
      add_region(step);
    } else {
      add_operator(step);
    }
    graph_.steps.push_back(std::move(step));
    node_ = nullptr;
  }

  // Arguments without a schema.
  Operand plain(const ExportedArgument& argument) {
    if (const auto* name = std::get_if<ExportedName>(&argument.content)) return value(*name);
    if (const auto* whole = std::get_if<std::int64_t>(&argument.content))
      return {.constant = *whole};
    if (const auto* real = std::get_if<double>(&argument.content)) return {.constant = *real};
    if (const auto* truth = std::get_if<bool>(&argument.content)) return {.constant = *truth};
    if (std::holds_alternative<std::monostate>(argument.content)) return {};
    if (const auto* text = std::get_if<std::string>(&argument.content)) return {.constant = *text};
    refuse("an argument is ", text_of(argument), ", which is neither a value nor a number");
  }

  Operand value(const ExportedName& name) const {
    const auto found = places_.find(name.name);
    if (found == places_.end()) refuse("nothing has made the value ", printable(name.name));
    return {.kind = Operand::Kind::kValue, .place = found->second};
  }

  void add_numbers(Step& step, const NamedNumberFunction& function) {
    step.function = function.function;
    if (node_->inputs.size() != function.arguments)
      refuse("it takes ", function.arguments, " arguments, not ", node_->inputs.size());
    for (const ExportedInput& input : node_->inputs) step.operands.push_back(plain(input.argument));
    if (node_->target.find("stride") != std::string::npos) needs_.reads_strides = true;
    add_results(step, 1);
  }

  static constexpr std::string_view kHigherOrder = "torch.ops.higher_order.";

  void add_region(Step& step) {
    auto region = std::make_unique<Region>();
    const std::string name = node_->target.substr(kHigherOrder.size());
    std::vector<ExportedArgument> settings;
    for (const ExportedInput& input : node_->inputs) {
      if (const auto* graph = std::get_if<ExportedSubgraph>(&input.argument.content)) {
        region->graphs.emplace_back(*graph->graph, settings_, needs_);
      } else if (region->graphs.empty()) {
        settings.push_back(input.argument);
      } else {
        add_flat(step, input.argument);
      }
    }
    set_region(*region, name, settings, step);
    check_operands(*region, step);
    for (const ExportedArgument& output : node_->outputs) add_flat_results(step, output);
    step.region = std::move(region);
  }

  // A list of operands, as that of a condition, is as many operands.
  void add_flat(Step& step, const ExportedArgument& argument) {
    const auto* list = std::get_if<ExportedList>(&argument.content);
    if (list == nullptr) {
      step.operands.push_back(plain(argument));
      return;
    }
    for (const ExportedArgument& item : *list) add_flat(step, item);
  }

  void add_flat_results(Step& step, const ExportedArgument& output) {
    const auto* list = std::get_if<ExportedList>(&output.content);
    if (list == nullptr) {
      step.results.push_back(result(output));
      return;
    }
    for (const ExportedArgument& item : *list) add_flat_results(step, item);
  }

  template <typename Type>
  const Type& setting(const std::vector<ExportedArgument>& settings, std::size_t index) const {
    const auto* found =
        index < settings.size() ? std::get_if<Type>(&settings[index].content) : nullptr;
    if (found == nullptr) refuse("its arguments are not those that PyTorch 2.11 to 2.15 writes");
    return *found;
  }

  void set_region(Region& region, const std::string& name,
      const std::vector<ExportedArgument>& settings, Step& step) {
    const std::size_t graphs = region.graphs.size();
    if (name == "wrap_with_set_grad_enabled" && graphs == 1) {
      region.kind = Region::Kind::kGradMode;
      region.enabled = setting<bool>(settings, 0);
    } else if (name == "wrap_with_autocast" && graphs == 1) {
      region.kind = Region::Kind::kAutocast;
      setting<std::string>(settings, 0);  // a type of device: it follows the module's
      if (settings.size() > 1 && std::holds_alternative<ElementType>(settings[1].content))
        region.type = scalar_type_of(setting<ElementType>(settings, 1));
      region.enabled = setting<bool>(settings, 2);
    } else if (name == "cond" && graphs == 2 && settings.size() == 1) {
      region.kind = Region::Kind::kCondition;
      step.operands.insert(step.operands.begin(), plain(settings[0]));
    } else if (graphs != 1 || !settings.empty() || !is_plain(name)) {
      refuse(
          "higher-order operators of this kind are not run; there are "
          "wrap_with_set_grad_enabled, wrap_with_autocast, cond, wrap, "
          "tag_activation_checkpoint; change the model so that torch.export does not make one");
    }
  }

  // What is computed is the graph's; activations are kept, so that nothing is computed twice.
  static bool is_plain(const std::string& name) {
    return name == "wrap" || name == "tag_activation_checkpoint";
  }

  void check_operands(const Region& region, const Step& step) const {
    const std::size_t own = region.kind == Region::Kind::kCondition ? 1 : 0;
    for (const ExecutableGraph& graph : region.graphs) {
      if (graph.inputs() != step.operands.size() - own)
        refuse("a graph in it takes ", graph.inputs(), " values, not the ",
            step.operands.size() - own, " given");
    }
  }

  void add_operator(Step& step) {
    step.operation = resolved();
    const c10::FunctionSchema& schema = step.operation->schema();
    check_names(schema);
    for (const c10::Argument& argument : schema.arguments())
      step.operands.push_back(operand_of(argument));
    follow_mode(step);
    step.is_batch_norm = schema.name() == "aten::batch_norm";
    keep_meaning_of_assertion(step);
    note_needs(step);
    add_results(step, schema.returns().size());
  }

  // `torch.ops.aten.add.Tensor` is aten::add.Tensor; an overload `default` has no name.
  c10::OperatorHandle resolved() const {
    constexpr std::string_view kOperators = "torch.ops.";
    const auto parts = split(node_->target, '.');
    if (!node_->target.starts_with(kOperators) || parts.size() != 5)
      refuse("neither an operator nor arithmetic of sizes");
    const std::string name = concat(parts[2], "::", replacement_of(parts[3], parts[4]));
    const auto found =
        c10::Dispatcher::singleton().findSchema({name, parts[4] == "default" ? "" : parts[4]});
    if (!found)
      refuse("LibTorch has no such operator",
          parts[2] == "aten" ? "; export the model by PyTorch 2.11 to 2.15"
                             : "; load the library that defines it, for example as a --plugin");
    return *found;
  }

  // Batches may have channels last in memory where Python's had not: what a view cannot do there, a
  // copy does, unless it is written: see keep_what_is_written().
  static std::string replacement_of(const std::string& name, const std::string& overload) {
    return name == "view" && overload == "default" ? "reshape" : name;
  }

  // See Note [Writing in place].
  void keep_what_is_written() {
    const SharedMemory memory(graph_);
    for (Place input = 0; std::cmp_less(input, graph_.inputs); ++input) {
      graph_.changed.push_back(memory.is_written(input));
      graph_.memory_of_inputs.push_back(memory.group_of(input));
    }
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i)
      graph_.memory_of_outputs.push_back(graph_.outputs[i].place == kNowhere
                                             ? graph_.values + i
                                             : memory.group_of(graph_.outputs[i].place));
    for (std::size_t i = 0; i < graph_.steps.size(); ++i) {
      Step& step = graph_.steps[i];
      const bool is_written = std::ranges::any_of(step.results, [&](const auto& result) {
        const auto* const place = std::get_if<Place>(&result);
        return place != nullptr && *place != kNowhere && memory.is_written(*place, i + 1);
      });
      if (!is_written || !may_copy(step)) continue;
      needs_.reads_strides = true;
      if (from_.nodes[i].target == kView) step.operation = view_operator();
    }
  }

  // What shares memory with its operand in one layout, and copies it in another.
  static bool may_copy(const Step& step) {
    static const std::set<std::string> kNames{
        "aten::reshape", "aten::reshape_as", "aten::flatten", "aten::contiguous", "aten::ravel"};
    return step.operation ? kNames.contains(step.operation->schema().name())
                          : step.region != nullptr;
  }

  static c10::OperatorHandle view_operator() {
    return c10::Dispatcher::singleton().findSchemaOrThrow("aten::view", "");
  }

  static constexpr const char* kView = "torch.ops.aten.view.default";

  // view(size) is reshape(shape).
  std::string schema_name(const std::string& name) const {
    return node_->target == kView && name == "size" ? "shape" : name;
  }

  void check_names(const c10::FunctionSchema& schema) const {
    std::set<std::string> names;
    for (const ExportedInput& input : node_->inputs) {
      if (!names.insert(input.name).second)
        refuse("the argument ", printable(input.name), " is given twice");
      if (!schema.argumentIndexWithName(schema_name(input.name)))
        refuse("the operator has no argument ", printable(input.name));
    }
  }

  Operand operand_of(const c10::Argument& argument) {
    const auto given = std::ranges::find_if(node_->inputs,
        [&](const ExportedInput& input) { return schema_name(input.name) == argument.name(); });
    if (given != node_->inputs.end()) return operand_of(given->argument, argument);
    if (argument.default_value()) return {.constant = *argument.default_value()};
    if (argument.real_type()->kind() == c10::TypeKind::OptionalType) return {};
    refuse("its argument ", argument.name(), " is missing");
  }

  Operand operand_of(const ExportedArgument& given, const c10::Argument& argument) {
    const c10::Type& type = without_optional(*argument.real_type());
    if (const auto* name = std::get_if<ExportedName>(&given.content)) {
      Operand operand = value(*name);
      operand.conversion = conversion_of(*name, type);
      return operand;
    }
    const auto* const device = std::get_if<ExportedDevice>(&given.content);
    if (device && type.kind() == c10::TypeKind::DeviceObjType && device->name != "meta")
      return {.kind = Operand::Kind::kDevice};
    const auto* const list = type.castRaw<c10::ListType>();
    if (list != nullptr && has_values(given)) return list_of(given, *list, argument);
    const bool stands_for_all =  // of a list of fixed size
        list && argument.N() && std::holds_alternative<std::int64_t>(given.content);
    const ExportedArgument constant =
        stands_for_all
            ? ExportedArgument{ExportedList(static_cast<std::size_t>(*argument.N()), given)}
            : given;
    if (auto value = boxed(constant, *argument.real_type())) return {.constant = std::move(*value)};
    refuse("its argument ", argument.name(), " is ", text_of(given), ", but the operator takes ",
        argument.real_type()->annotation_str());
  }

  // Python makes a tensor of a number where an operator takes a tensor.
  Operand::Conversion conversion_of(const ExportedName& name, const c10::Type& type) const {
    if (type.kind() == c10::TypeKind::FloatType) return Operand::Conversion::kDouble;
    const bool is_number = !from_.tensors.contains(name.name);
    return is_number && type.kind() == c10::TypeKind::TensorType ? Operand::Conversion::kTensor
                                                                 : Operand::Conversion::kNone;
  }

  static bool has_values(const ExportedArgument& given) {
    const auto* list = std::get_if<ExportedList>(&given.content);
    return list != nullptr && std::ranges::any_of(*list, [](const ExportedArgument& item) {
      return std::holds_alternative<ExportedName>(item.content);
    });
  }

  Operand list_of(
      const ExportedArgument& given, const c10::ListType& type, const c10::Argument& argument) {
    Operand list{.kind = Operand::Kind::kList, .element = type.getElementType()};
    for (const ExportedArgument& item : std::get<ExportedList>(given.content)) {
      if (const auto* name = std::get_if<ExportedName>(&item.content)) {
        list.items.push_back(value(*name));
      } else if (auto constant = boxed(item, *list.element)) {
        list.items.push_back({.constant = std::move(*constant)});
      } else {
        refuse("its argument ", argument.name(), " has the item ", text_of(item),
            ", but the operator takes ", argument.real_type()->annotation_str());
      }
    }
    return list;
  }

  std::size_t module_index(const std::string& path) {
    const auto found = std::ranges::find(needs_.modules, path);
    const auto index = static_cast<std::size_t>(found - needs_.modules.begin());
    if (found == needs_.modules.end()) needs_.modules.push_back(path);
    return index;
  }

  std::size_t module_of_node() {
    return module_index(node_->modules.empty() ? "" : node_->modules.back().path);
  }

  // See Note [Training and evaluation].
  void follow_mode(Step& step) {
    if (!settings_.follows_modes) return;
    if (counts_batches()) step.only_in_training_of = module_of_node();
    const auto index = training_argument(step.operation->schema(), *node_);
    if (!index) return;
    Operand& operand = step.operands[*index];
    if (operand.kind != Operand::Kind::kConstant || operand.constant.isNone()) return;
    const IValue exported = operand.constant;
    operand.kind = Operand::Kind::kByMode;
    operand.place = static_cast<Place>(module_of_node());
    operand.constant = exported.isBool() ? IValue(false) : IValue(0.0);
    const bool turns_on = exported.isBool() && !settings_.is_exported_in_training;
    operand.in_training = turns_on ? IValue(true) : exported;
  }

  // A batch norm's `num_batches_tracked`, which its operator does not count.
  bool counts_batches() const {
    if (node_->target != "torch.ops.aten.add_.Tensor" || node_->inputs.empty()) return false;
    const auto* name = std::get_if<ExportedName>(&node_->inputs.front().argument.content);
    return name != nullptr && name->name.ends_with("num_batches_tracked");
  }

  // What a model's floating-point type is, autocast and to() may change.
  void keep_meaning_of_assertion(Step& step) const {
    const c10::FunctionSchema& schema = step.operation->schema();
    if (schema.name() != "aten::_assert_tensor_metadata") return;
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      IValue& constant = step.operands[i].constant;
      if (schema.arguments()[i].name() == "dtype" && constant.isInt() &&
          c10::isFloatingType(constant.toScalarType()))
        constant = IValue();
    }
  }

  void note_needs(const Step& step) {
    const c10::FunctionSchema& schema = step.operation->schema();
    if (schema.name().starts_with("aten::as_strided") || schema.name() == "aten::stride" ||
        (schema.name() == "aten::view" && schema.overload_name() == "dtype"))
      needs_.reads_strides = true;
    if (needs_.decomposed_norm.empty() && schema.name() != "aten::batch_norm" &&
        schema.name().find("batch_norm") != std::string::npos)
      needs_.decomposed_norm = step.text;
    const bool is_switched = schema.argumentIndexWithName("dropout_p").has_value() ||
                             training_argument(schema, *node_).has_value();
    if (needs_.random_node.empty() && !is_switched &&
        step.operation->hasTag(at::Tag::nondeterministic_seeded))
      needs_.random_node = step.text;
  }

  void add_results(Step& step, std::size_t returned) {
    if (node_->outputs.size() != returned)
      refuse("it has ", node_->outputs.size(), " outputs, but the operator returns ", returned);
    for (const ExportedArgument& output : node_->outputs) {
      const auto* list = std::get_if<ExportedList>(&output.content);
      if (list == nullptr) {
        step.results.push_back(result(output));
        continue;
      }
      std::vector<Place> places;
      for (const ExportedArgument& item : *list) places.push_back(result(item));
      step.results.emplace_back(std::move(places));
    }
  }

  Place result(const ExportedArgument& output) {
    if (const auto* name = std::get_if<ExportedName>(&output.content)) return new_place(name->name);
    if (std::holds_alternative<std::monostate>(output.content)) return kNowhere;
    refuse("an output is ", text_of(output), " instead of a name");
  }

  // From the end: the first use met is the last one of a run; a value that is not met at all is
  // not kept.
  void mark_last_uses() {
    std::set<Place> used;
    for (Operand& output : graph_.outputs) note_use(output, used, /*is_output=*/true);
    mark_last_uses(graph_.steps, used);
  }

  static void mark_last_uses(std::vector<Step>& steps, std::set<Place>& used) {
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      const auto forget_unused = [&](Place& place) {
        if (!used.contains(place)) place = kNowhere;
      };
      for (auto& each : step->results) {
        if (auto* place = std::get_if<Place>(&each)) forget_unused(*place);
        if (auto* places = std::get_if<std::vector<Place>>(&each))
          std::ranges::for_each(*places, forget_unused);
      }
      mark_in_nodes(*step, used);
      for (auto operand = step->operands.rbegin(); operand != step->operands.rend(); ++operand)
        note_use(*operand, used, /*is_output=*/false);
    }
  }

  // Where our kernels do not compute it, the nodes do: then what nothing behind the step reads is
  // theirs.
  static void mark_in_nodes(Step& step, const std::set<Place>& used) {
    std::set<Place> behind;
    const auto note = [&](Place place) {
      if (used.contains(place)) behind.insert(place);
    };
    for (const Operand& operand : step.operands) visit_values(operand, note);
    for (const auto& result : step.results)
      if (const auto* place = std::get_if<Place>(&result)) note(*place);
    mark_last_uses(step.nodes, behind);
  }

  static void note_use(Operand& operand, std::set<Place>& used, bool is_output) {
    for (auto item = operand.items.rbegin(); item != operand.items.rend(); ++item)
      note_use(*item, used, is_output);
    if (operand.kind != Operand::Kind::kValue) return;
    if (used.insert(operand.place).second && !is_output) operand.kind = Operand::Kind::kLastUse;
  }

  const ExportedGraph& from_;
  const GraphSettings& settings_;
  GraphNeeds& needs_;
  GraphParts graph_;
  std::map<std::string, Place> places_;
  const ExportedNode* node_ = nullptr;
};

}  // namespace

GraphParts parts_of(const ExportedGraph& graph, const GraphSettings& settings, GraphNeeds& needs) {
  return GraphBuilder(graph, settings, needs).build();
}

}  // namespace lockstep::nn::exported
