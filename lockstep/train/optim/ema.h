#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <torch/types.h>

#include "lockstep/train/options/optimizer_settings.h"

namespace lockstep {

/// Returns the share of the average that update `number`, counted from 1, keeps: none in the first,
/// which copies; then the decay, with warm-up at most 1 - number^(-2/3).
double ema_decay(const EmaSettings& settings, std::int64_t number);

/// An exponential moving average of tensors that training changes, as timm's ModelEmaV3:
/// floating-point ones are averaged, running statistics too, others copied. A tensor that is listed
/// twice (tied weights) has one average.
///
///     ModelEma ema(replica.state().values(), {.decay = 0.999});
///     ...
///     ema.update();                              // after each optimizer step
///     ema.with_averages([&] { evaluate(model); });
class ModelEma {
 public:
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

}  // namespace lockstep
