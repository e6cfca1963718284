#pragma once

#include <optional>

#include <torch/types.h>

#include "lockstep/formats/weights/element_type.h"

namespace lockstep::nn {

/// Returns LibTorch's name of a file's element type; nothing for one that LibTorch does not have.
std::optional<torch::ScalarType> scalar_type_of(ElementType type);

/// Returns the element type in which a file holds a tensor; nothing if it cannot.
std::optional<ElementType> element_type_of(torch::ScalarType type);

}  // namespace lockstep::nn
