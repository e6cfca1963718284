#include "lockstep/parallel/ddp/gradient_hooks.h"

#include <cstdint>
#include <utility>

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep {

/// Keeps the accumulation node of a parameter alive, for otherwise its hook never fires.
struct GradientHooks::Attached {
  using Node =
      decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>()));

  explicit Attached(const torch::Tensor& parameter, std::function<void()> hook)
      : node(torch::autograd::impl::grad_accumulator(parameter)) {
    using torch::autograd::variable_list;
    const auto run = [hook = std::move(hook)](const variable_list& outputs, const variable_list&) {
      hook();
      return outputs;
    };
    key = node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(run));
  }
  ~Attached() { node->del_post_hook(key); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

  Node node;
  std::uintptr_t key = 0;
};

GradientHooks::GradientHooks() = default;
GradientHooks::~GradientHooks() = default;

void GradientHooks::add(const torch::Tensor& parameter, std::function<void()> hook) {
  attached_.push_back(std::make_unique<Attached>(parameter, std::move(hook)));
}

void GradientHooks::clear() { attached_.clear(); }

}  // namespace lockstep
