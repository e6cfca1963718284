#include "lockstep/nn/models/plugin_loss.h"

#include <exception>
#include <string>

#include <ATen/core/grad_mode.h>

#include "lockstep/core/error.h"
#include "lockstep/device/memory_error.h"
#include "lockstep/nn/autocast.h"

namespace lockstep::nn {
namespace {

torch::Tensor value_of_function(
    const PluginLoss& loss, const torch::Tensor& scores, const torch::Tensor& labels) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(concat("plugin: the loss ", loss.name, " of scores ", scores.sizes(),
        " and labels ", labels.sizes(), " failed: ", why));
  };
  try {
    return loss.mean(scores, labels);
  } catch (const std::exception& error) {
    if (as_memory_error(error)) throw;
    refuse(error.what());
  } catch (...) {
    refuse("it threw what is no std::exception");
  }
  return {};
}

std::string text_of(const torch::Tensor& value) {
  if (!value.defined()) return "an undefined tensor";
  return concat("a tensor of ", value.sizes(), ", ", value.scalar_type(), ", on ", value.device());
}

}  // namespace

torch::Tensor loss_by(
    const PluginLoss& loss, const torch::Tensor& scores, const torch::Tensor& labels) {
  const Autocast whole(scores.device().type(), at::kBFloat16, /*enabled=*/false);
  torch::Tensor value = value_of_function(loss, scores, labels);
  check(value.defined() && value.dim() == 0 && at::isFloatingType(value.scalar_type()) &&
            value.device() == scores.device(),
      "plugin: the loss ", loss.name, " must return the mean over the batch, one number on ",
      scores.device(), " as a tensor of [], not ", text_of(value));
  check(value.requires_grad() || !scores.requires_grad() || !at::GradMode::is_enabled(),
      "plugin: the loss ", loss.name,
      " has no gradient: compute it from the scores by LibTorch's operators, without item() or "
      "detach()");
  return value;
}

}  // namespace lockstep::nn
