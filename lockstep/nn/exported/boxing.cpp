#include "lockstep/nn/exported/boxing.h"

#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ScalarOps.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/weights.h"

namespace lockstep::nn::exported {
namespace {

using c10::IValue;
using c10::TypeKind;

template <typename Type>
const Type* as(const ExportedArgument& constant) {
  return std::get_if<Type>(&constant.content);
}

std::optional<at::Scalar> number_of(const ExportedArgument& constant) {
  if (const auto* truth = as<bool>(constant)) return at::Scalar(*truth);
  if (const auto* whole = as<std::int64_t>(constant)) return at::Scalar(*whole);
  if (const auto* real = as<double>(constant)) return at::Scalar(*real);
  if (const auto* pair = as<std::complex<double>>(constant))
    return at::Scalar(c10::complex<double>(*pair));
  return std::nullopt;
}

at::MemoryFormat memory_format_of(ExportedMemoryFormat format) {
  switch (format) {
    case ExportedMemoryFormat::kContiguous:
      return at::MemoryFormat::Contiguous;
    case ExportedMemoryFormat::kChannelsLast:
      return at::MemoryFormat::ChannelsLast;
    case ExportedMemoryFormat::kChannelsLast3d:
      return at::MemoryFormat::ChannelsLast3d;
    case ExportedMemoryFormat::kPreserve:
      return at::MemoryFormat::Preserve;
  }
  return at::MemoryFormat::Preserve;
}

std::optional<IValue> boxed_number(const ExportedArgument& constant, TypeKind kind) {
  const auto number = number_of(constant);
  if (!number) return std::nullopt;
  switch (kind) {
    case TypeKind::TensorType:
      return wrapped_number(*number);
    case TypeKind::NumberType:
      return IValue(*number);
    case TypeKind::FloatType:
      if (number->isFloatingPoint() || number->isIntegral(false)) return number->toDouble();
      return std::nullopt;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      if (number->isIntegral(/*includeBool=*/true)) return number->toLong();
      return std::nullopt;
    case TypeKind::BoolType:
      if (number->isBoolean()) return number->toBool();
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<IValue> boxed_word(const ExportedArgument& constant, TypeKind kind) {
  if (const auto* text = as<std::string>(constant); text && kind == TypeKind::StringType)
    return IValue(*text);
  if (const auto* type = as<ElementType>(constant); type && kind == TypeKind::ScalarTypeType) {
    const auto scalar = scalar_type_of(*type);
    return scalar ? std::optional<IValue>(*scalar) : std::nullopt;
  }
  if (const auto* format = as<ExportedMemoryFormat>(constant);
      format && kind == TypeKind::MemoryFormatType)
    return IValue(memory_format_of(*format));
  if (const auto* layout = as<ExportedLayout>(constant);
      layout && kind == TypeKind::LayoutType && layout->name == "strided")
    return IValue(at::kStrided);
  return std::nullopt;
}

std::optional<IValue> boxed_items(const ExportedArgument& constant, const c10::ListType& type) {
  std::vector<IValue> items;
  const c10::Type& element = *type.getElementType();
  if (const auto* list = as<ExportedList>(constant)) {
    for (const ExportedArgument& item : *list) {
      auto value = boxed(item, element);
      if (!value) return std::nullopt;
      items.push_back(std::move(*value));
    }
  }
  return boxed_list(element, items);
}

template <typename Element, typename Take>
IValue list_of(std::span<const IValue> items, const Take& take) {
  c10::List<Element> list;
  list.reserve(items.size());
  for (const IValue& item : items) list.push_back(take(item));
  return list;
}

}  // namespace

at::Tensor wrapped_number(const at::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

const c10::Type& without_optional(const c10::Type& type) {
  const auto* optional = type.castRaw<c10::OptionalType>();
  return optional ? *optional->getElementType() : type;
}

std::optional<IValue> boxed(const ExportedArgument& constant, const c10::Type& given) {
  const c10::Type& type = without_optional(given);
  if (as<std::monostate>(constant))
    return &type != &given || type.kind() == TypeKind::GeneratorType ? std::optional(IValue())
                                                                     : std::nullopt;
  if (const auto* list = type.castRaw<c10::ListType>(); list && as<ExportedList>(constant))
    return boxed_items(constant, *list);
  if (auto number = boxed_number(constant, type.kind())) return number;
  return boxed_word(constant, type.kind());
}

IValue boxed_list(const c10::Type& element, std::span<const IValue> items) {
  switch (element.kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return list_of<std::int64_t>(items, [](const IValue& item) { return item.toInt(); });
    case TypeKind::FloatType:
      return list_of<double>(items, [](const IValue& item) { return item.toScalar().toDouble(); });
    case TypeKind::BoolType:
      return list_of<bool>(items, [](const IValue& item) { return item.toBool(); });
    case TypeKind::NumberType:
      return list_of<at::Scalar>(items, [](const IValue& item) { return item.toScalar(); });
    case TypeKind::StringType:
      return list_of<std::string>(items, [](const IValue& item) { return item.toStringRef(); });
    case TypeKind::TensorType:
      return list_of<at::Tensor>(items, [](const IValue& item) { return item.toTensor(); });
    default:
      break;
  }
  TORCH_CHECK(without_optional(element).kind() == TypeKind::TensorType, "lists of ",
      element.annotation_str(), " are not made");
  return list_of<std::optional<at::Tensor>>(items, [](const IValue& item) {
    return item.isNone() ? std::nullopt : std::optional(item.toTensor());
  });
}

std::string text_of(const ExportedArgument& constant) {
  const auto text = [](const auto& content) -> std::string {
    using Content = std::remove_cvref_t<decltype(content)>;
    if constexpr (std::is_same_v<Content, std::monostate>) return "None";
    if constexpr (std::is_same_v<Content, bool>) return content ? "True" : "False";
    if constexpr (std::is_same_v<Content, std::int64_t> || std::is_same_v<Content, double> ||
                  std::is_same_v<Content, std::complex<double>>)
      return concat(content);
    if constexpr (std::is_same_v<Content, std::string>) return printable(content);
    if constexpr (std::is_same_v<Content, ElementType>) return std::string(torch_name(content));
    if constexpr (std::is_same_v<Content, ExportedMemoryFormat>) return "a memory format";
    if constexpr (requires { content.name; }) return printable(content.name);
    if constexpr (std::is_same_v<Content, ExportedList>) {
      std::vector<std::string> items;
      for (const ExportedArgument& item : content) items.push_back(text_of(item));
      return concat("[", first_of(items, items.size()), "]");
    }
    return "";
  };
  return std::visit(text, constant.content);
}

}  // namespace lockstep::nn::exported
