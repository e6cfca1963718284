#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/types.h>

#include "lockstep/nn/exported/code.h"
#include "lockstep/nn/exported/exported_module.h"
#include "lockstep/nn/exported/segments.h"

namespace lockstep::nn::exported {

/// The part of an archive that a layer of a chain computes.
struct LayerCode {
  std::shared_ptr<const Code> code;
  std::shared_ptr<const Segments> segments;
  std::size_t number = 0;  ///< of the segment
  LastLayer last;          ///< is called by the last one
};

/// Makes a layer of a segment. It shares parameters, buffers and modules with `net`, in which all
/// of them are registered by Python's names; `tensors` are in the order of Code::held.
///
/// The first layer takes the user's inputs, one tensor or several as a vector; the others hand on
/// vectors.
torch::nn::AnyModule make_layer(
    LayerCode code, const std::vector<torch::Tensor>& tensors, const torch::nn::Module& net);

}  // namespace lockstep::nn::exported
