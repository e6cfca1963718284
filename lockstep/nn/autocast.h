#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace lockstep::nn {

/// A scope whose operations run in a shorter type where LibTorch deems that safe, else in fp32.
///
/// The lists are PyTorch's. On a CPU, with float16 as with bfloat16: convolutions, matrix products,
/// linear, attention and PReLU compute in the shorter type; losses, prod and cdist in fp32; cat and
/// stack in the widest type of their inputs. All else, such as softmax, norms, ReLU, sums, keeps
/// the type that comes in. float16 reaches 65504 only: train with a GradScaler.
///
/// Applies to this thread only, nests, and ends with its scope, also by an exception. Only the
/// forward pass and the loss belong inside; backward() repeats the types of forward by itself.
///
///     at::Tensor loss;
///     {
///       Autocast autocast(at::kCPU, at::kBFloat16);
///       loss = torch::cross_entropy_loss(model(images), labels);
///     }
///     loss.backward();
class Autocast {
 public:
  /// Begins the scope; `enabled = false` makes an island of full precision within another one.
  explicit Autocast(c10::DeviceType device, c10::ScalarType type = c10::ScalarType::BFloat16,
      bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool outer_enabled_;
  c10::ScalarType outer_type_;
};

}  // namespace lockstep::nn
