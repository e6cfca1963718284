#include "lockstep/nn/exported/input_forms.h"

#include <algorithm>
#include <variant>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/weights.h"

namespace lockstep::nn::exported {
namespace {

// Autocast and to() choose among floating-point types.
bool are_alike(torch::ScalarType a, torch::ScalarType b) {
  return a == b || (c10::isFloatingType(a) && c10::isFloatingType(b)) ||
         (c10::isComplexType(a) && c10::isComplexType(b));
}

// PyTorch lets sizes begin with 2 that were not 0 or 1 in the example, and takes these all the
// same.
std::int64_t least_of(const ExportedRange& range) {
  const std::int64_t least = range.least.value_or(0);
  return least > 2 ? least : 0;
}

bool is_within(std::int64_t value, const ExportedRange& range) {
  return value >= least_of(range) && value <= range.most.value_or(value);
}

std::string text_of_range(const ExportedRange& range) {
  if (!range.most) return concat(least_of(range), " or more");
  return concat(least_of(range), " to ", *range.most);
}

}  // namespace

std::string text_of(const ExportedTensor& tensor) {
  std::vector<std::string> sizes;
  for (const ExportedSize& size : tensor.shape)
    sizes.push_back(size.number ? std::to_string(*size.number) : size.expression);
  return concat("[", joined(sizes), "] of ", torch_name(tensor.type));
}

InputForms::InputForms(const ExportedProgram& program, const std::string& where) {
  std::size_t index = 0;
  for (const ExportedInputSpec& input : program.inputs) {
    if (input.kind != ExportedInputSpec::Kind::kUser) continue;
    const std::string name = program.input_names.at(index++);
    const auto* value = std::get_if<ExportedName>(&input.value.content);
    if (value == nullptr) continue;
    const auto tensor = program.graph.tensors.find(value->name);
    const auto type =
        tensor == program.graph.tensors.end() ? std::nullopt : scalar_type_of(tensor->second.type);
    if (!type)
      throw DataError(concat(where, ": the input ", printable(name),
          " is no tensor, but a number; export the model with a constant in its place"));
    Form form{*type, {}, text_of(tensor->second)};
    for (const ExportedSize& size : tensor->second.shape)
      form.sizes.push_back(size_of(size, program));
    names_.push_back(name);
    forms_.push_back(std::move(form));
  }
}

InputForms::Size InputForms::size_of(const ExportedSize& size, const ExportedProgram& program) {
  if (size.number) return {.number = *size.number, .text = std::to_string(*size.number)};
  const auto range = program.ranges.find(size.expression);
  const bool is_symbol = size.expression.find_first_not_of(
                             "abcdefghijklmnopqrstuvwxyz"
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == std::string::npos;
  if (!is_symbol) return {.is_free = true, .text = size.expression};
  const auto known = std::ranges::find(symbols_, size.expression);
  const auto index = static_cast<std::size_t>(known - symbols_.begin());
  if (known == symbols_.end()) {
    symbols_.push_back(size.expression);
    ranges_.push_back(range == program.ranges.end() ? ExportedRange{} : range->second);
  }
  return {.symbol = index, .text = size.expression};
}

std::optional<std::string> InputForms::input_of_fixed_batch() const {
  for (std::size_t i = 0; i < forms_.size(); ++i) {
    const auto& sizes = forms_[i].sizes;
    if (sizes.empty() || (!sizes[0].symbol && !sizes[0].is_free)) return names_[i];
  }
  return std::nullopt;
}

std::string InputForms::text() const {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < forms_.size(); ++i) texts.push_back(names_[i] + " " + forms_[i].text);
  return joined(texts);
}

void InputForms::check(std::span<const torch::Tensor> inputs) const {
  lockstep::check(inputs.size() == forms_.size(), "exported model: takes ", forms_.size(),
      forms_.size() == 1 ? " tensor (" : " tensors (", text(), "), not ", inputs.size());
  std::vector<std::optional<std::int64_t>> values(symbols_.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) check_form(i, inputs[i], values);
}

void InputForms::check_form(std::size_t input, const torch::Tensor& tensor,
    std::span<std::optional<std::int64_t>> values) const {
  const Form& form = forms_[input];
  lockstep::check(tensor.defined(), "exported model: the input ", names_[input], " is undefined");
  lockstep::check(
      std::cmp_equal(tensor.dim(), form.sizes.size()) && are_alike(tensor.scalar_type(), form.type),
      "exported model: the input ", names_[input], " is ", tensor.sizes(), " of ",
      tensor.scalar_type(), ", but the program takes ", forms_[input].text);
  for (std::size_t i = 0; i < form.sizes.size(); ++i) {
    const Size& size = form.sizes[i];
    const std::int64_t given = tensor.size(static_cast<std::int64_t>(i));
    if (size.is_free) continue;
    const std::int64_t wanted = size.symbol ? values[*size.symbol].value_or(given) : size.number;
    if (given != wanted || (size.symbol && !is_within(given, ranges_[*size.symbol])))
      refuse_size(input, tensor, i);
    if (size.symbol) values[*size.symbol] = given;
  }
}

void InputForms::refuse_size(
    std::size_t input, const torch::Tensor& tensor, std::size_t dimension) const {
  const Size& size = forms_[input].sizes[dimension];
  const std::string advice =
      size.symbol ? concat("; ", size.text, " is one size in all inputs, ",
                        text_of_range(ranges_[*size.symbol]))
                  : concat(
                        "; give other inputs, or export it by torch.export.export() with "
                        "dynamic_shapes={\"",
                        names_[input], "\": {", dimension, ": torch.export.Dim(\"",
                        dimension == 0 ? "batch" : "size", "\", min=1)}} to let that size vary");
  throw InvalidArgument(concat("exported model: the input ", names_[input], " is ", tensor.sizes(),
      ", but the program takes ", forms_[input].text, advice));
}

}  // namespace lockstep::nn::exported
