#pragma once

#include <optional>
#include <span>
#include <string>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include "lockstep/formats/export/exported_program.h"

namespace lockstep::nn::exported {

/// Boxes a constant as an argument of that type of an operator's schema (a "real" one, which tells
/// a memory format from a number); nothing if the constant is of another kind. None is that of
/// optional types only.
///
/// As Python's calls do, numbers stand for tensors, one number for a list of a fixed size, and
/// whole numbers for floating ones.
std::optional<c10::IValue> boxed(const ExportedArgument& constant, const c10::Type& type);

/// Boxes items as a list of that type of elements. Throws c10::Error if one is of another kind.
c10::IValue boxed_list(const c10::Type& element, std::span<const c10::IValue> items);

/// Makes a tensor of a number, whose type does not promote that of others.
at::Tensor wrapped_number(const at::Scalar& number);

/// Returns the type within an optional one, else the type itself.
const c10::Type& without_optional(const c10::Type& type);

/// Returns a constant as messages show it.
std::string text_of(const ExportedArgument& constant);

}  // namespace lockstep::nn::exported
