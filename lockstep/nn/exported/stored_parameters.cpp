#include "lockstep/nn/exported/stored_parameters.h"

#include <cstring>

#include <ATen/core/grad_mode.h>

#include "lockstep/nn/weights.h"

namespace lockstep::nn::exported {

StoredParameters::StoredParameters(const ExportedArchive& archive) : memory_(archive.memory) {
  for (const ExportedProgram& program : archive.programs) {
    for (const ExportedInputSpec& input : program.inputs) {
      const TensorEntry* const entry = program.tensors.find(input.target);
      if (input.kind == ExportedInputSpec::Kind::kParameter && entry != nullptr)
        entries_.emplace(input.target, *entry);
    }
  }
}

void StoredParameters::copy_to(const torch::Tensor& parameter, const std::string& name) const {
  const at::NoGradGuard no_gradients;
  const TensorEntry& entry = entries_.at(name);
  const bool lies_as_in_file = parameter.is_cpu() && parameter.is_contiguous() &&
                               parameter.scalar_type() == scalar_type_of(entry.type);
  const auto copy = [&] {
    if (lies_as_in_file && !entry.bytes.empty())
      std::memcpy(parameter.mutable_data_ptr(), entry.bytes.data(), entry.bytes.size());
    if (!lies_as_in_file) parameter.copy_(tensor_of(entry));
  };
  if (!memory_) return copy();
  memory_->checked(copy);
  memory_->forget(entry.bytes);
}

}  // namespace lockstep::nn::exported
