#include "lockstep/formats/export/argument.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lockstep/core/text.h"
#include "lockstep/formats/export/expression.h"
#include "lockstep/formats/export/graph.h"

namespace lockstep::exported {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostShown = 100;

constexpr std::array<std::pair<int, ElementType>, 20> kTypes{{{1, ElementType::kUint8},
    {2, ElementType::kInt8}, {3, ElementType::kInt16}, {4, ElementType::kInt32},
    {5, ElementType::kInt64}, {6, ElementType::kFloat16}, {7, ElementType::kFloat32},
    {8, ElementType::kFloat64}, {10, ElementType::kComplex64}, {11, ElementType::kComplex128},
    {12, ElementType::kBool}, {13, ElementType::kBfloat16}, {28, ElementType::kUint16},
    {29, ElementType::kFloat8E4m3fn}, {30, ElementType::kFloat8E5m2},
    {31, ElementType::kFloat8E4m3fnuz}, {32, ElementType::kFloat8E5m2fnuz},
    {33, ElementType::kFloat8E8m0fnu}, {34, ElementType::kUint32}, {35, ElementType::kUint64}}};

// By their numbers, from 1.
constexpr std::array<const char*, 7> kLayouts{
    "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "strided"};
constexpr std::int64_t kStrided = 7;

template <typename T>
ExportedArgument argument_of(T content) {
  return {std::move(content)};
}

ElementType element_type(std::int64_t number, const std::string& where) {
  for (const auto& [known, type] : kTypes) {
    if (known == number) return type;
  }
  refuse(where, "a type of elements with the number ", number, " is not read");
}

std::int64_t whole(const Json& value, const std::string& where) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() <= kMost);
  if (!fits) refuse(where, "must be a whole number of 64 bits");
  return value.get<std::int64_t>();
}

ExportedArgument none(const Json& value, const std::string& where) {
  if (value != true) refuse(where, "as_none must be true");
  return {};
}

ExportedArgument flag(const Json& value, const std::string& where) {
  if (!value.is_boolean()) refuse(where, "must be true or false");
  return argument_of(value.get<bool>());
}

ExportedArgument integer(const Json& value, const std::string& where) {
  return argument_of(whole(value, where));
}

// JSON has no words for what is not finite.
double real(const Json& value, const std::string& where) {
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) refuse(where, "must be a number");
  return value.get<double>();
}

ExportedArgument floating(const Json& value, const std::string& where) {
  return argument_of(real(value, where));
}

ExportedArgument complex(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  const auto part = [&](const char* key) {
    return fields.has(key) ? real(fields.items()[key], where) : fields.number(key);
  };
  return argument_of(std::complex<double>(part("real"), part("imag")));
}

ExportedArgument text(const Json& value, const std::string& where) {
  if (!value.is_string()) refuse(where, "must be a text");
  return argument_of(value.get<std::string>());
}

ExportedArgument bare_name(const Json& value, const std::string& where) {
  if (!value.is_string()) refuse(where, "must be a name");
  return argument_of(ExportedName{value.get<std::string>()});
}

ExportedArgument type(const Json& value, const std::string& where) {
  return argument_of(element_type(whole(value, where), where));
}

ExportedArgument memory_format(const Json& value, const std::string& where) {
  constexpr std::array kFormats{ExportedMemoryFormat::kContiguous,
      ExportedMemoryFormat::kChannelsLast, ExportedMemoryFormat::kChannelsLast3d,
      ExportedMemoryFormat::kPreserve};
  const std::int64_t number = whole(value, where);
  if (number < 1 || number > std::ssize(kFormats))
    refuse(where, "a memory format with the number ", number, " is not read");
  return argument_of(kFormats.at(static_cast<std::size_t>(number - 1)));
}

ExportedArgument layout(const Json& value, const std::string& where) {
  const std::int64_t number = whole(value, where);
  if (number < 1 || number > std::ssize(kLayouts))
    refuse(where, "a layout with the number ", number, " is not read");
  return argument_of(ExportedLayout{kLayouts.at(static_cast<std::size_t>(number - 1))});
}

ExportedArgument device(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  const auto index = fields.count_if("index");
  const std::string type = fields.text("type");
  return argument_of(ExportedDevice{index ? concat(type, ':', *index) : type});
}

ExportedArgument graph(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  std::string name = fields.text("name");
  const std::string inner = concat(where, ", graph ", shown(name));
  return argument_of(ExportedSubgraph{std::move(name),
      std::make_shared<const ExportedGraph>(read_graph(fields.object("graph").items(), inner))});
}

using Read = ExportedArgument (*)(const Json& value, const std::string& where);

template <Read kRead>
ExportedArgument list_of(const Json& value, const std::string& where) {
  if (!value.is_array()) refuse(where, "must be a list");
  ExportedList list;
  list.reserve(value.size());
  for (const Json& item : value) list.push_back(kRead(item, where));
  return argument_of(std::move(list));
}

struct Kind {
  std::string_view name;
  Read read;
};

template <std::size_t kSize>
ExportedArgument read_one_of(
    const std::array<Kind, kSize>& kinds, const Json& value, const std::string& where) {
  const Choice choice = choice_of(value, where);
  for (const Kind& kind : kinds) {
    if (kind.name == choice.kind) return kind.read(choice.value, where);
  }
  refuse(where, "the kind ", shown(choice.kind), " is not read");
}

// Of SymIntArgument, SymFloatArgument and SymBoolArgument.
constexpr std::array kSymbols{Kind{"as_name", bare_name}, Kind{"as_int", integer},
    Kind{"as_float", floating}, Kind{"as_bool", flag}};
constexpr std::array kOptionalTensors{Kind{"as_tensor", read_name}, Kind{"as_none", none}};

ExportedArgument symbol(const Json& value, const std::string& where) {
  return read_one_of(kSymbols, value, where);
}

ExportedArgument optional_tensor(const Json& value, const std::string& where) {
  return read_one_of(kOptionalTensors, value, where);
}

constexpr std::array kArguments{Kind{"as_none", none}, Kind{"as_tensor", read_name},
    Kind{"as_tensors", list_of<read_name>}, Kind{"as_nested_tensors", list_of<list_of<read_name>>},
    Kind{"as_optional_tensor", optional_tensor},
    Kind{"as_optional_tensors", list_of<optional_tensor>}, Kind{"as_int", integer},
    Kind{"as_ints", list_of<integer>}, Kind{"as_int_lists", list_of<list_of<integer>>},
    Kind{"as_float", floating}, Kind{"as_floats", list_of<floating>},
    Kind{"as_float_lists", list_of<list_of<floating>>}, Kind{"as_complex", complex},
    Kind{"as_bool", flag}, Kind{"as_bools", list_of<flag>}, Kind{"as_string", text},
    Kind{"as_strings", list_of<text>}, Kind{"as_sym_int", symbol},
    Kind{"as_sym_ints", list_of<symbol>}, Kind{"as_sym_float", symbol},
    Kind{"as_sym_floats", list_of<symbol>}, Kind{"as_sym_bool", symbol},
    Kind{"as_sym_bools", list_of<symbol>}, Kind{"as_scalar_type", type},
    Kind{"as_memory_format", memory_format}, Kind{"as_layout", layout}, Kind{"as_device", device},
    Kind{"as_graph", graph}};

}  // namespace

std::string shown(const std::string& name) {
  return printable_path(name.substr(0, kMostShown)) + (name.size() > kMostShown ? "..." : "");
}

Choice choice_of(const Json& value, const std::string& where) {
  const Json& fields = JsonFields(value, where).items();
  auto chosen = fields.end();
  for (auto field = fields.begin(); field != fields.end(); ++field) {
    if (field->is_null()) continue;
    if (chosen != fields.end()) {
      refuse(where, "is both ", shown(chosen.key()), " and ", shown(field.key()));
    }
    chosen = field;
  }
  if (chosen == fields.end()) refuse(where, "is of no kind");
  return {chosen.key(), *chosen};
}

// Not JsonFields::objects(): those of a hostile file would need a hundred times its size.
const Json& list_at(const JsonFields& fields, const char* key) {
  if (!fields.has(key) || !fields.items()[key].is_array()) fields.refuse(key, "be a list");
  return fields.items()[key];
}

ExportedSize read_size(const Json& value, const std::string& where) {
  const Choice choice = choice_of(value, where);
  if (choice.kind == "as_int") return {.number = whole(choice.value, where)};
  if (choice.kind != "as_expr") refuse(where, "a size of the kind ", shown(choice.kind));
  return {.expression = plain_expression(JsonFields(choice.value, where).text("expr_str"))};
}

ExportedTensor read_tensor(const Json& value, const std::string& where) {
  const JsonFields fields(value, where);
  if (fields.count("layout") != kStrided) {
    refuse(where, "a tensor that is sparse or packed; only those with strides are read");
  }
  ExportedTensor tensor{.type = element_type(fields.count("dtype"), where),
      .requires_grad = fields.flag("requires_grad")};
  for (const Json& size : list_at(fields, "sizes")) {
    tensor.shape.push_back(read_size(size, where));
    const auto& number = tensor.shape.back().number;
    if (number && *number < 0) refuse(where, "a tensor with the size ", *number);
  }
  return tensor;
}

ExportedArgument read_argument(const Json& value, const std::string& where) {
  return read_one_of(kArguments, value, where);
}

ExportedArgument read_name(const Json& value, const std::string& where) {
  return argument_of(ExportedName{JsonFields(value, where).text("name")});
}

}  // namespace lockstep::exported
