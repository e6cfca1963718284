#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/formats/export/exported_program.h"
#include "lockstep/formats/json_fields.h"

// Values of PyTorch's torch/_export/serde/schema.py. What does not belong there is a DataError that
// begins with `where`: file, program, node, argument.

namespace lockstep::exported {

template <typename... Reasons>
[[noreturn]] void refuse(const std::string& where, const Reasons&... reason) {
  throw DataError(concat(where, ": ", reason...));
}

/// Returns a name of the file's as messages show it.
std::string shown(const std::string& name);

/// The field of a union; a union is an object with one that is not null.
struct Choice {
  const std::string& kind;
  const nlohmann::json& value;
};
Choice choice_of(const nlohmann::json& value, const std::string& where);

/// Returns a field that is a list.
const nlohmann::json& list_at(const JsonFields& fields, const char* key);

/// Reads a size, or a stride.
ExportedSize read_size(const nlohmann::json& value, const std::string& where);

/// Reads a TensorMeta; only tensors with strides are taken.
ExportedTensor read_tensor(const nlohmann::json& value, const std::string& where);

/// Reads the value of a union Argument, or of one of those in it: a name, a number, a graph, ...
ExportedArgument read_argument(const nlohmann::json& value, const std::string& where);

/// Reads `{"name": NAME}`.
ExportedArgument read_name(const nlohmann::json& value, const std::string& where);

}  // namespace lockstep::exported
