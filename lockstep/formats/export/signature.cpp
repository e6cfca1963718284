#include "lockstep/formats/export/signature.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/formats/export/argument.h"

namespace lockstep::exported {
namespace {

using Json = nlohmann::json;
using Input = ExportedInputSpec;
using Output = ExportedOutputSpec;

/// A kind of input or output: its name in the file, and the key there of what it is in Python.
template <typename Spec>
struct Row {
  std::string_view name;
  typename Spec::Kind kind;
  const char* target;
};

constexpr std::array kInputs{Row<Input>{"user_input", Input::Kind::kUser, nullptr},
    Row<Input>{"parameter", Input::Kind::kParameter, "parameter_name"},
    Row<Input>{"buffer", Input::Kind::kBuffer, "buffer_name"},
    Row<Input>{"tensor_constant", Input::Kind::kConstant, "tensor_constant_name"},
    Row<Input>{"constant_input", Input::Kind::kConstantValue, nullptr}};

constexpr std::array kOutputs{Row<Output>{"user_output", Output::Kind::kUser, nullptr},
    Row<Output>{"loss_output", Output::Kind::kLoss, nullptr},
    Row<Output>{"buffer_mutation", Output::Kind::kBufferMutation, "buffer_name"},
    Row<Output>{"parameter_mutation", Output::Kind::kParameterMutation, "parameter_name"},
    Row<Output>{"user_input_mutation", Output::Kind::kInputMutation, "user_input_name"}};

template <typename Spec, std::size_t kSize>
const Row<Spec>& row_of(
    const std::array<Row<Spec>, kSize>& rows, const std::string& kind, const std::string& where) {
  const auto row = std::find_if(
      rows.begin(), rows.end(), [&](const Row<Spec>& known) { return known.name == kind; });
  if (row == rows.end()) refuse(where, "the kind ", shown(kind), " is not read");
  return *row;
}

const std::string* name_in(const ExportedArgument& argument) {
  const auto* const name = std::get_if<ExportedName>(&argument.content);
  return name == nullptr ? nullptr : &name->name;
}

// The file says twice which value it is: here `{"name": NAME}` or an argument.
void check_same(const Json& here, const ExportedArgument& in_graph, const std::string& where) {
  const bool is_bare = here.is_object() && here.contains("name");
  const ExportedArgument argument = is_bare ? read_name(here, where) : read_argument(here, where);
  const std::string *const name = name_in(argument), *const other = name_in(in_graph);
  const bool is_same = name == nullptr || other == nullptr ? name == other : *name == *other;
  if (!is_same) refuse(where, "is not the one of the graph");
}

class SignatureReader {
 public:
  SignatureReader(const Json& signature, const std::string& where, ExportedProgram& program)
      : fields_(signature, where), where_(where), program_(program) {}

  void read() {
    read_all("input", list_at(fields_, "input_specs"), program_.graph.inputs,
        [this](auto&&... parts) { read_input(parts...); });
    read_all("output", list_at(fields_, "output_specs"), program_.graph.outputs,
        [this](auto&&... parts) { read_output(parts...); });
  }

 private:
  template <typename Read>
  void read_all(const char* what, const Json& specs, const ExportedList& values, const Read& read) {
    if (specs.size() != values.size()) {
      refuse(where_, "the graph has ", values.size(), ' ', what, "s, but the signature ",
          specs.size());
    }
    for (std::size_t i = 0; i < specs.size(); ++i)
      read(specs[i], values[i], concat(where_, ": ", what, ' ', i));
  }

  void read_input(const Json& json, const ExportedArgument& value, const std::string& where) {
    const Choice choice = choice_of(json, where);
    const JsonFields fields(choice.value, where);
    const Row<Input>& row = row_of(kInputs, choice.kind, where);
    Input spec{.kind = row.kind, .value = value};
    if (row.kind == Input::Kind::kConstantValue) {
      spec.value = read_argument(fields.object("value").items(), where);
      if (name_in(value) != nullptr) refuse(where, "is a constant, but a value in the graph");
    } else {
      check_same(fields.object("arg").items(), value, where);
      if (name_in(value) == nullptr) refuse(where, "is not a value, but a constant in the graph");
    }
    if (row.kind == Input::Kind::kBuffer) spec.persistent = fields.flag("persistent");
    if (row.target != nullptr) {
      spec.target = fields.text(row.target);
      check_tensor(spec, where);
    }
    program_.inputs.push_back(std::move(spec));
  }

  // A name of Python's has parts between dots, none of them empty.
  void check_tensor(const Input& spec, const std::string& where) {
    const std::string around = '.' + spec.target + '.';
    if (around.find("..") != std::string::npos) refuse(where, "no name: ", shown(spec.target));
    if (!targets_.insert({spec.kind, spec.target}).second || !names_.insert(spec.target).second)
      refuse(where, shown(spec.target), " is an input twice");
    const TensorEntry* const tensor = program_.tensors.find(spec.target);
    if (tensor == nullptr) refuse(where, "the file has no tensor ", shown(spec.target));
    const auto known = program_.graph.tensors.find(*name_in(spec.value));
    if (known == program_.graph.tensors.end()) refuse(where, "is not a tensor in the graph");
    const ExportedTensor& expected = known->second;
    const bool fits =
        tensor->type == expected.type &&
        std::equal(tensor->shape.begin(), tensor->shape.end(), expected.shape.begin(),
            expected.shape.end(), [](std::int64_t size, const ExportedSize& of_graph) {
              return of_graph.number == size;
            });
    if (!fits) {
      refuse(where, shown(spec.target), " is ", torch_name(tensor->type), " of shape ",
          shape_text(tensor->shape), ", which is not what the graph expects");
    }
  }

  void read_output(const Json& json, const ExportedArgument& value, const std::string& where) {
    const Choice choice = choice_of(json, where);
    const JsonFields fields(choice.value, where);
    const Row<Output>& row = row_of(kOutputs, choice.kind, where);
    check_same(fields.object("arg").items(), value, where);
    Output spec{.kind = row.kind, .value = value};
    if (row.target != nullptr) {
      spec.target = fields.text(row.target);
      if (!is_there(spec)) refuse(where, "changes ", shown(spec.target), ", which is no input");
    }
    program_.outputs.push_back(std::move(spec));
  }

  bool is_there(const Output& spec) const {
    if (spec.kind == Output::Kind::kBufferMutation)
      return targets_.contains({Input::Kind::kBuffer, spec.target});
    if (spec.kind == Output::Kind::kParameterMutation)
      return targets_.contains({Input::Kind::kParameter, spec.target});
    return std::any_of(program_.inputs.begin(), program_.inputs.end(), [&](const Input& input) {
      return input.kind == Input::Kind::kUser && *name_in(input.value) == spec.target;
    });
  }

  JsonFields fields_;
  const std::string& where_;
  ExportedProgram& program_;
  std::set<std::pair<Input::Kind, std::string>> targets_;
  std::set<std::string> names_;
};

}  // namespace

void read_signature(const Json& signature, const std::string& where, ExportedProgram& program) {
  SignatureReader(signature, where, program).read();
}

}  // namespace lockstep::exported
