#pragma once

#include <optional>

#include <torch/types.h>

#include "lockstep/formats/weights/element_type.h"

namespace lockstep::nn {

/// Gives LibTorch's name of a file's element type; nothing for one that LibTorch does not have.
std::optional<torch::ScalarType> scalar_type_of(ElementType type);

/// Gives the element type in which a file holds a tensor; nothing if it cannot.
std::optional<ElementType> element_type_of(torch::ScalarType type);

}  // namespace lockstep::nn
