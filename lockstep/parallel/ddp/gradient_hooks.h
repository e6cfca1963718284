#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/types.h>

namespace lockstep {

/// Hooks on parameters that run in backward, each time that a gradient has been added up.
class GradientHooks {
 public:
  GradientHooks();
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  void add(const torch::Tensor& parameter, std::function<void()> hook);
  /// Takes all hooks off.
  void clear();

 private:
  struct Attached;
  std::vector<std::unique_ptr<Attached>> attached_;
};

}  // namespace lockstep
