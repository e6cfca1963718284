#pragma once

#include <torch/optim/optimizer.h>

namespace lockstep {

/// Sets the learning rate of all parameter groups.
///
///     set_lr(optimizer, lr_at(schedule, step));   // before each step
inline void set_lr(torch::optim::Optimizer& optimizer, double lr) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(lr);
}

}  // namespace lockstep
