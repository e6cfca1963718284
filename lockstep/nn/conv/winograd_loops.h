#pragma once

// Included once by each source that compiles the loops for one instruction set.

#include "lockstep/nn/conv/winograd_weights.h"

namespace lockstep::nn::conv {
namespace {

template <typename Form>
constexpr WinogradKernel kernel_of(const char* name) {
  return {.name = name,
      .tile = Form::kOut,
      .planes = Form::kIn * Form::kIn,
      .panel = kPanel,
      .transform_weights = transform_weights<Form>,
      .transform_input = transform_input<Form>,
      .multiply = multiply,
      .transform_output = transform_output<Form>,
      .transform_gradient = transform_gradient<Form>,
      .accumulate = accumulate,
      .finish_weights = finish_weights<Form>};
}

constexpr WinogradBuild build_of(const char* name) {
  return {name, kernel_of<SmallTile>(name), kernel_of<LargeTile>(name)};
}

}  // namespace
}  // namespace lockstep::nn::conv
