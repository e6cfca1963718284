#pragma once

#include <optional>
#include <string_view>

#include "lockstep/formats/weights/element_type.h"

// The names that pickles of torch.save use: module, blank, class or function.
namespace lockstep::pickle {

inline constexpr const char* kOrderedDict = "collections OrderedDict";
inline constexpr const char* kTensorV2 = "torch._utils _rebuild_tensor_v2";
inline constexpr const char* kTensorV3 = "torch._utils _rebuild_tensor_v3";
inline constexpr const char* kUntypedStorage = "torch.storage UntypedStorage";

/// Finds the type of the elements of such a storage, as of `torch FloatStorage`.
std::optional<ElementType> storage_type_named(std::string_view name);

/// Gives the storage of such elements; newer types have none and lie in an untyped one.
std::optional<std::string_view> storage_name(ElementType type);

/// Finds a type by a name such as `torch float32`.
std::optional<ElementType> element_type_named(std::string_view name);

}  // namespace lockstep::pickle
