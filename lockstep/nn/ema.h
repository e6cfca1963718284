#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/nn/ema_settings.h"
#include "lockstep/nn/named_state.h"

namespace lockstep {

/// Returns the share of the average that update `number`, counted from 1, keeps: none in the first,
/// which copies; then the decay, with warm-up at most 1 - number^(-2/3).
double ema_decay(const EmaSettings& settings, std::int64_t number);

/// An exponential moving average of tensors that training changes, as timm's ModelEmaV3:
/// floating-point ones are averaged, running statistics too, others copied. A tensor that is listed
/// twice (tied weights) has one average.
///
///     ModelEma ema(*net, {.decay = 0.999});
///     ...
///     ema.update();                              // after each optimizer step
///     ema.with_averages([&] { evaluate(*net); });
class ModelEma {
 public:
  /// Follows the parameters and buffers of a module: those of nn::named_state().
  ModelEma(const torch::nn::Module& module, const EmaSettings& settings)
      : ModelEma(nn::named_state(module).values(), settings) {}

  /// Begins with the tensors as they are; keeps them, and follows them wherever they are.
  ModelEma(std::vector<torch::Tensor> tensors, const EmaSettings& settings);

  void update();

  /// Runs the body while the tensors have the values of their averages.
  void with_averages(const std::function<void()>& body);

  /// Returns the averages in the order of the tensors; with updates(), what a snapshot must hold.
  const std::vector<torch::Tensor>& averages() const { return averages_; }
  std::int64_t updates() const { return updates_; }

  /// Goes on from what averages() and updates() gave. Throws InvalidArgument if they do not fit.
  void restore(const std::vector<torch::Tensor>& averages, std::int64_t updates);

 private:
  void exchange();

  std::vector<torch::Tensor> tensors_;
  std::vector<torch::Tensor> averages_;
  std::vector<std::size_t> firsts_;  // places where a tensor is listed for the first time
  EmaSettings settings_;
  std::int64_t updates_ = 0;
};

/// Returns the averages by the names of what they are averages of, which are as many. Throws
/// InvalidArgument for another number.
nn::NamedTensors named_averages(const ModelEma& ema, const nn::NamedTensors& state);

}  // namespace lockstep
