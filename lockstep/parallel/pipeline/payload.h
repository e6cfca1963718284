#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <torch/nn/modules/container/any_value.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// The forms in which values may pass from one stage to the next.
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

/// The tensors that one stage hands to the next for one micro-batch, or their gradients on the way
/// back.
struct Payload {
  ValueForm form = ValueForm::kTensor;
  std::vector<torch::Tensor> values;  ///< the value's tensors, then the skips that cross
  std::size_t skips = 0;              ///< how many of them are skips
};

/// The direction of a payload.
enum class Direction : std::int64_t { kForward, kBackward };

/// The address of a payload: the stage that takes it, and the micro-batch.
struct Address {
  Direction direction = Direction::kForward;
  int stage = 0;
  int micro_batch = 0;
  friend auto operator<=>(
      const Address&, const Address&) = default;  // NOLINT(modernize-use-nullptr)
};

/// Returns address, form, types and shapes of a payload in numbers, to be sent before its tensors.
std::vector<std::int64_t> describe(const Address& address, const Payload& payload);

/// Reads a description and makes tensors, on a device, into which the payload's values are
/// received. Throws CommError if the numbers are not a description.
std::pair<Address, Payload> read_description(
    const std::vector<std::int64_t>& numbers, torch::Device device);

/// Sends the root's tensor to all ranks of a group, which need not know its type and shape and get
/// it on their device. A collective; only the root's tensor matters.
torch::Tensor broadcast_described(
    const torch::Tensor& tensor, int root, const ProcessGroup& group, torch::Device device);

}  // namespace lockstep
