#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/formats/weights/pickle.h"
#include "lockstep/formats/weights/tensor_file.h"

// What the names in a pickle of torch.save mean. Nothing is executed: each of the few callables
// that a state dictionary needs is a function here, and of what any other makes only the name is
// kept. What is refused throws DataError with the reason alone; the reader of the pickle adds file
// and offset.

namespace lockstep::pickle {

/// Returns whether a name has a meaning here: a callable, or one of PyTorch's types.
bool is_known(std::string_view name);

/// Returns what calling `callable` with these arguments gives in Python; an unknown name gives
/// itself.
Value call(const Value& callable, const Value& arguments, Arena& arena);

/// Returns the storage that a persistent id stands for.
Value storage_of(const Value& id, Arena& arena);

/// The most bytes that are read, and written: a state dictionary needs about 200 for each tensor.
inline constexpr std::uint64_t kMostBytes = 16 << 20;

// Names that pickles of torch.save use: module, blank, class or function.
inline constexpr const char* kOrderedDict = "collections OrderedDict";
inline constexpr const char* kTensorV2 = "torch._utils _rebuild_tensor_v2";
inline constexpr const char* kTensorV3 = "torch._utils _rebuild_tensor_v3";
inline constexpr const char* kUntypedStorage = "torch.storage UntypedStorage";

/// Returns the name of the storage of such elements, such as `torch FloatStorage`; newer types have
/// none and lie in an untyped one.
std::optional<std::string_view> storage_name(ElementType type);

}  // namespace lockstep::pickle
