#include "lockstep/formats/weights/torch_rules.h"

#include <array>
#include <limits>
#include <span>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::pickle {
namespace {

constexpr std::array<std::pair<std::string_view, ElementType>, 12> kStorages{{
    {"torch BoolStorage", ElementType::kBool},
    {"torch ByteStorage", ElementType::kUint8},
    {"torch CharStorage", ElementType::kInt8},
    {"torch ShortStorage", ElementType::kInt16},
    {"torch HalfStorage", ElementType::kFloat16},
    {"torch BFloat16Storage", ElementType::kBfloat16},
    {"torch IntStorage", ElementType::kInt32},
    {"torch FloatStorage", ElementType::kFloat32},
    {"torch ComplexFloatStorage", ElementType::kComplex64},
    {"torch DoubleStorage", ElementType::kFloat64},
    {"torch LongStorage", ElementType::kInt64},
    {"torch ComplexDoubleStorage", ElementType::kComplex128},
}};

constexpr const char* kDefaultDict = "collections defaultdict";
constexpr const char* kParameter = "torch._utils _rebuild_parameter";
constexpr std::string_view kScript = "__torch__";

// Returns the type of the elements in a storage of that class.
std::optional<ElementType> storage_type_named(std::string_view name) {
  for (const auto& [known, type] : kStorages) {
    if (name == known) return type;
  }
  return std::nullopt;
}

// Finds a type by a name such as `torch float32`.
std::optional<ElementType> element_type_named(std::string_view name) {
  constexpr std::string_view kModule = "torch ";
  if (!name.starts_with(kModule)) return std::nullopt;
  return element_type_of_torch(name.substr(kModule.size()));
}

template <typename... Parts>
[[noreturn]] void reject(const Parts&... reason) {
  throw DataError(concat(reason...));
}

/// Returns the value as that alternative, or says what else it is.
template <typename T>
const T& as(const Value& value, const char* what) {
  const T* found = std::get_if<T>(&value);
  if (found == nullptr) reject(what, " is ", kind_of(value));
  return *found;
}

std::span<const Value> arguments_of(
    const char* callable, const Value& value, std::size_t fewest, std::size_t most) {
  const std::vector<Value>& items = as<const Tuple*>(value, "what a callable is given")->items;
  if (items.size() < fewest || items.size() > most) {
    reject(callable, " is given ", items.size(), " values");
  }
  return items;
}

// LibTorch's archives number the modules after the first: `__torch__.___torch_mangle_7 Module`.
bool is_cpp_module(std::string_view name) {
  constexpr std::string_view kNumbered = ".___torch_mangle_", kModule = " Module";
  if (!name.starts_with(kScript) || !name.ends_with(kModule)) return false;
  name = name.substr(kScript.size(), name.size() - kScript.size() - kModule.size());
  if (name.empty()) return true;
  return name.starts_with(kNumbered) &&
         parse_number<std::uint64_t>(name.substr(kNumbered.size())).has_value();
}

std::vector<std::int64_t> sizes_of(const Value& value, const char* what) {
  std::vector<std::int64_t> sizes;
  for (const Value& item : as<const Tuple*>(value, what)->items) {
    const auto size = as<std::int64_t>(item, what);
    if (size < 0) reject(what, " has the negative number ", size);
    sizes.push_back(size);
  }
  return sizes;
}

// Hooks are functions, so they would have to be executed; what torch.save writes is empty.
void check_hooks(const Value& value) {
  if (!as<Dict*>(value, "a tensor's hooks")->items.empty()) reject("a tensor has backward hooks");
}

// A flag there says that the elements are to be negated or conjugated when they are read.
void check_tensor_metadata(const Value& value) {
  if (std::holds_alternative<std::monostate>(value)) return;
  if (!as<Dict*>(value, "a tensor's metadata")->items.empty()) {
    reject("a tensor has metadata (conj, neg); save tensor.resolve_conj().resolve_neg()");
  }
}

void check_view(const Tensor& tensor) {
  const std::string what =
      concat("a tensor, ", torch_name(tensor.type), " of shape ", shape_text(tensor.shape));
  if (tensor.strides.size() != tensor.shape.size()) {
    reject(what, ", has ", tensor.strides.size(), " strides");
  }
  if (!tensor_bytes(tensor.type, tensor.shape)) reject(what, ", has too many elements");
  const std::uint64_t there = tensor.storage->bytes / bytes_of(tensor.type);
  const auto end = view_end(tensor.offset, tensor.shape, tensor.strides);
  if (!end || *end > there) {
    reject(what, ", reaches beyond the ", there, " elements of its storage ",
        printable(tensor.storage->key));
  }
}

/// Rebuilds a tensor from (storage, offset, shape, strides, requires_grad, hooks), which v3
/// continues with the type and both perhaps with metadata.
Value rebuild_tensor(const char* callable, bool has_type, const Value& given, Arena& arena) {
  const std::size_t fewest = has_type ? 7 : 6;
  const auto values = arguments_of(callable, given, fewest, fewest + 1);
  Tensor tensor;
  tensor.storage = as<const Storage*>(values[0], "a tensor's storage");
  const auto offset = as<std::int64_t>(values[1], "a tensor's offset");
  if (offset < 0) reject("a tensor's offset is the negative number ", offset);
  tensor.offset = static_cast<std::uint64_t>(offset);
  tensor.shape = sizes_of(values[2], "a tensor's shape");
  tensor.strides = sizes_of(values[3], "a tensor's strides");
  as<bool>(values[4], "requires_grad");
  check_hooks(values[5]);
  if (values.size() > fewest) check_tensor_metadata(values[fewest]);
  auto type = tensor.storage->type;
  if (has_type) type = element_type_named(as<const Name*>(values[6], "a tensor's type")->text);
  if (!type) reject("a tensor's type is not said");
  tensor.type = *type;
  check_view(tensor);
  return &arena.tensors.emplace_back(std::move(tensor));
}

Value rebuild_parameter(const Value& given) {
  const auto values = arguments_of(kParameter, given, 3, 3);
  as<const Tensor*>(values[0], "a parameter's data");
  as<bool>(values[1], "requires_grad");
  check_hooks(values[2]);
  return values[0];
}

// A module that C++ saved.
Value make_module(const Value& arguments, Arena& arena) {
  arguments_of("a module", arguments, 0, 0);
  return &arena.dicts.emplace_back(Dict{.is_module = true, .items = {}});
}

}  // namespace

std::optional<std::string_view> storage_name(ElementType type) {
  for (const auto& [name, known] : kStorages) {
    if (type == known) return name;
  }
  return std::nullopt;
}

bool is_known(std::string_view name) {
  for (const char* callable : {kOrderedDict, kDefaultDict, kTensorV2, kTensorV3, kParameter})
    if (name == callable) return true;
  return storage_type_named(name) || element_type_named(name) || name == kUntypedStorage;
}

Value call(const Value& callable, const Value& arguments, Arena& arena) {
  const std::string& name = as<const Name*>(callable, "what is called")->text;
  if (name == kTensorV2) return rebuild_tensor(kTensorV2, false, arguments, arena);
  if (name == kTensorV3) return rebuild_tensor(kTensorV3, true, arguments, arena);
  if (name == kParameter) return rebuild_parameter(arguments);
  if (is_cpp_module(name)) return make_module(arguments, arena);
  if (name.starts_with(kScript))
    reject("TorchScript of ", printable(name),
        ", which holds code: in Python, torch.save(torch.jit.load(...).state_dict())");
  if (name == kDefaultDict) return &arena.dicts.emplace_back();  // its items follow
  if (!is_known(name)) return callable;
  if (name != kOrderedDict) reject(printable(name), " is called, but is not a function");
  arguments_of(kOrderedDict, arguments, 0, 0);
  return &arena.dicts.emplace_back(Dict{.is_ordered = true, .items = {}});
}

Value storage_of(const Value& id, Arena& arena) {
  const auto values = arguments_of("a persistent id", id, 5, 5);
  if (*as<Text>(values[0], "a persistent id's kind") != "storage") {
    reject("a persistent id is of the kind ", printable(*std::get<Text>(values[0])));
  }
  const std::string& name = as<const Name*>(values[1], "a storage's type")->text;
  Storage storage{.type = storage_type_named(name), .key = *as<Text>(values[2], "a storage's key")};
  if (!storage.type && name != kUntypedStorage)
    reject(printable(name), " is not a type of storage");
  as<Text>(values[3], "a storage's place");
  const auto size = as<std::int64_t>(values[4], "a storage's size");
  const std::uint64_t width = storage.type ? bytes_of(*storage.type) : 1;
  if (size < 0 ||
      static_cast<std::uint64_t>(size) > std::numeric_limits<std::int64_t>::max() / width) {
    reject("a storage's size is ", size);
  }
  storage.bytes = static_cast<std::uint64_t>(size) * width;
  return &arena.storages.emplace_back(std::move(storage));
}

}  // namespace lockstep::pickle
