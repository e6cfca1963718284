#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/formats/weights/element_type.h"

namespace lockstep {

struct TorchValue;
struct TorchItem;

/// Shows a tensor that torch.save wrote: row-major without gaps, whatever strides it had there.
struct TorchTensor {
  ElementType type = ElementType::kFloat32;
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> bytes;
};

/// Holds a list or a tuple of Python.
struct TorchList {
  std::vector<TorchValue> items;
};

/// Is the key of a dict: a text, or a number as in an optimizer's state.
using TorchKey = std::variant<std::int64_t, std::string>;

/// Holds a dict or an OrderedDict of Python, in its order; no key comes twice.
struct TorchDict {
  std::vector<TorchItem> items;
};

/// Is a value that torch.save wrote; monostate is Python's None.
struct TorchValue {
  std::variant<
      std::monostate, bool, std::int64_t, double, std::string, TorchList, TorchDict, TorchTensor>
      content;
};

/// Is an entry of a dict.
struct TorchItem {
  TorchKey key;
  TorchValue value;
};

}  // namespace lockstep
