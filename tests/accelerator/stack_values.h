#pragma once

// What operators are called with: values on a stack, and the tensors in them.

#include <optional>
#include <utility>
#include <vector>

#include "tests/accelerator/late_call.h"
#include <ATen/core/List.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty_strided.h>

namespace lockstep::emulated {

using torch::jit::Stack;

inline bool is_on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_privateuseone();
}

/// Returns the value with what a function gives for each tensor; lists and optional lists too.
template <typename Function>
c10::IValue mapped(const c10::IValue& value, const Function& of) {
  if (value.isTensor()) return of(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(of(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList())
      list.push_back(tensor ? std::optional(of(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

/// Returns the value with each tensor of a device replaced, and the device by the CPU.
template <typename Replace>
c10::IValue replaced(const c10::IValue& value, const Replace& replace) {
  if (value.isDevice() && value.toDevice().is_privateuseone()) return c10::Device(c10::kCPU);
  return mapped(value,
      [&](const at::Tensor& tensor) { return is_on_device(tensor) ? replace(tensor) : tensor; });
}

/// Returns the tensors in a value, without those that are undefined.
inline std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  std::vector<at::Tensor> found;
  if (value.isTensor()) found.push_back(value.toTensor());
  if (value.isTensorList()) found = value.toTensorVector();
  if (value.isOptionalTensorList())
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList())
      if (tensor) found.push_back(*tensor);
  std::erase_if(found, [](const at::Tensor& tensor) { return !tensor.defined(); });
  return found;
}

inline bool may_hold_masks(const c10::IValue& value) {
  return value.isOptionalTensorList() || value.isTensorList();
}

inline bool is_mask(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
}

inline void copy_values(const Stack& from, const Stack& to) {
  const KernelDispatch dispatch;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto targets = tensors_in(to[i]), sources = tensors_in(from[i]);
    for (std::size_t k = 0; k < targets.size(); ++k) targets[k].copy_(sources[k]);
  }
}

// Kernels may resize what they are given to write to, and back: not a view of a device's memory.
inline std::vector<std::pair<at::Tensor, at::Tensor>> replaced_outputs(
    const c10::FunctionSchema& schema, Stack& stack) {
  std::vector<std::pair<at::Tensor, at::Tensor>> outputs;
  for (std::size_t i = 0; i < stack.size(); ++i) {
    if (!schema.arguments()[i].is_out() || !stack[i].isTensor()) continue;
    const at::Tensor view = stack[i].toTensor();
    outputs.emplace_back(view, view.clone());
    stack[i] = outputs.back().second;
  }
  return outputs;
}

inline c10::TensorOptions on_cpu(const at::Tensor& tensor) {
  return c10::TensorOptions().dtype(tensor.dtype()).device(c10::kCPU);
}

inline at::Tensor zeros_for(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), on_cpu(tensor)).zero_();
}

}  // namespace lockstep::emulated
