#include "lockstep/train/snapshot/restore_tensors.h"

#include <string>

#include <ATen/core/grad_mode.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/tensor_bytes.h"
#include "lockstep/nn/weight_types.h"

namespace lockstep {
namespace {

std::string differences(
    const nn::NamedTensors& target, const nn::NamedTensors& saved, Others others) {
  std::string text;
  for (const auto& item : target) {
    const torch::Tensor* const found = saved.find(item.key());
    if (found == nullptr) {
      text += "  missing: " + item.key() + "\n";
    } else if (found->scalar_type() != item.value().scalar_type() ||
               found->sizes() != item.value().sizes()) {
      text += "  " + item.key() + ": " + type_and_shape(*found) + " was saved, " +
              type_and_shape(item.value()) + " is needed\n";
    }
  }
  for (const auto& item : saved) {
    if (others == Others::kRefused && !target.contains(item.key()))
      text += "  unexpected: " + item.key() + "\n";
  }
  return text;
}

}  // namespace

std::string type_and_shape(const torch::Tensor& tensor) {
  const auto type = nn::element_type_of(tensor.scalar_type());
  return concat(type ? torch_name(*type) : c10::toString(tensor.scalar_type()), ' ',
      shape_text(tensor.sizes()));
}

void restore_tensors(const nn::NamedTensors& target, const nn::NamedTensors& saved,
    const std::string& what, Others others) {
  const std::string text = differences(target, saved, others);
  if (!text.empty()) {
    throw DataError(what + ": what was saved does not fit; nothing was loaded:\n" + text +
                    "continue with the model and the configuration that the snapshot was taken of");
  }
  const torch::NoGradGuard no_gradients;
  for (const auto& item : target) torch::Tensor(item.value()).copy_(saved[item.key()]);
}

}  // namespace lockstep
