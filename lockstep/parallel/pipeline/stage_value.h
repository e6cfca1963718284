#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/modules/container/any_value.h>
#include <torch/types.h>

namespace lockstep {

/// Names the forms in which values may pass from one stage to the next.
enum class ValueForm : std::int64_t {
  kTensor,
  kVector,  ///< std::vector<torch::Tensor>
  kPair,    ///< std::pair of tensors
  kTuple1,  ///< std::tuple of that many tensors
  kTuple2,
  kTuple3,
  kTuple4,
  kRecurrent  ///< std::tuple<Tensor, std::tuple<Tensor, Tensor>>, what an LSTM gives
};

/// Takes the tensors out of a value. Throws InvalidArgument that names the type if it has another
/// form.
std::vector<torch::Tensor> tensors_of(torch::nn::AnyValue& value, ValueForm& form);

/// Puts tensors into a value of that form.
torch::nn::AnyValue value_of(ValueForm form, const std::vector<torch::Tensor>& tensors);

}  // namespace lockstep
