#include "lockstep/nn/exported/program_frame.h"

#include <ATen/core/grad_mode.h>

namespace lockstep::nn::exported {

// What will be overwritten is copied, as backward may need the value before.
void ProgramFrame::take_inputs(const std::vector<torch::Tensor>& inputs) {
  inputs_ = inputs;
  for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
    const Program::Input& input = program_.inputs[i];
    if (input.kind != Program::Input::Kind::kUser) continue;
    const torch::Tensor& given = inputs[input.index];
    const torch::Tensor tensor = program_.needs_python_layout ? given.contiguous() : given;
    frame_[i] = input.is_overwritten ? tensor.clone() : tensor;
  }
}

void ProgramFrame::take_held(std::size_t number) {
  const Program::Input& input = program_.inputs[number];
  if (input.kind != Program::Input::Kind::kHeld) return;
  const torch::Tensor& tensor = tensors_[input.index];
  frame_[number] = input.is_overwritten ? tensor.clone() : tensor;
}

void ProgramFrame::store(std::size_t output) const {
  const auto& to = program_.outputs[output];
  using Kind = Program::Output::Kind;
  if (to.kind != Kind::kIntoHeld && to.kind != Kind::kIntoInput) return;
  const auto& mode = to.only_in_training_of;
  if (mode && !context_.modules[*mode]->is_training()) return;
  const at::NoGradGuard no_gradients;
  const torch::Tensor value = this->value(program_.graph.parts().outputs[output].place).toTensor();
  const torch::Tensor& target = to.kind == Kind::kIntoHeld ? tensors_[to.index] : inputs_[to.index];
  target.copy_(value);
}

}  // namespace lockstep::nn::exported
