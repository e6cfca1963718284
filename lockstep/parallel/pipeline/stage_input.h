#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep {

/// A scope without autocast, for backward: it repeats the types of its forward by itself.
class AutocastOff {
 public:
  AutocastOff() : guard_(c10::autocast_dispatch_keyset) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

/// Drops what autocast has cast of parameters in this scope. Whoever switched it on, and would drop
/// them, may be gone by the time of a backward; the next step would find casts of old values.
class OwnCasts {
 public:
  OwnCasts() { at::autocast::increment_nesting(); }
  ~OwnCasts() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  OwnCasts(const OwnCasts&) = delete;
  OwnCasts& operator=(const OwnCasts&) = delete;
};

/// The tensors that came into a stage: leaves that collect gradients, and what the layers see.
///
/// The layers see not the leaf but a tensor with a history that shares its memory and version, so a
/// layer right after the cut may work in place, as in the whole model.
struct StageInput {
  StageInput() = default;
  /// Takes the tensors to the device. Those that require gradients become leaves.
  StageInput(const std::vector<torch::Tensor>& tensors, torch::Device device);

  std::vector<torch::Tensor> leaves;
  std::vector<torch::Tensor> seen;

  /// Returns the leaves that collect gradients.
  std::vector<torch::Tensor> wanting() const;
  /// Returns each leaf's gradient, undefined where there is none.
  std::vector<torch::Tensor> gradients() const;
};

/// Detects changes of tensors in place.
class Unchanged {
 public:
  explicit Unchanged(std::vector<torch::Tensor> tensors);
  /// Throws Error that names the tensor's number if one was changed since the construction.
  void verify() const;

 private:
  std::vector<torch::Tensor> tensors_;
  std::vector<std::int64_t> versions_;
};

/// The buffers of modules, other than the statistics of norms, which a second forward must not
/// change again.
class OwnBuffers {
 public:
  explicit OwnBuffers(const std::vector<const torch::nn::Module*>& modules);
  /// Throws InvalidArgument that names a buffer if one was changed since the construction.
  void check_unchanged() const;

 private:
  std::vector<std::string> names_;
  std::vector<torch::Tensor> buffers_;
  std::vector<std::int64_t> versions_;
};

/// Keeps the batch counters of batch norm layers, which a second forward must not change.
class BatchCounters {
 public:
  BatchCounters() = default;
  /// Takes those of the modules.
  explicit BatchCounters(const std::vector<const torch::nn::Module*>& modules);
  void save();
  void restore() const;

 private:
  std::vector<torch::Tensor> counters_, saved_;
};

}  // namespace lockstep
