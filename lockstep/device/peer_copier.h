#pragma once

#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

namespace lockstep {

/// Tensors on their way to a device.
struct PeerCopies {
  std::vector<torch::Tensor> tensors = {};
  std::optional<c10::Event> arrived = {};  ///< nothing if none had to be copied

  /// Returns them; the current stream of their device waits until they have come.
  std::vector<torch::Tensor> wait() const;
};

/// Copies tensors from other accelerators to a device, beside what either computes.
///
/// LibTorch copies on the streams that are current, where each device waits for all that the other
/// has been given. These copies have a stream on either side: they begin when the source's current
/// stream has come to where it is now, and keep nobody but who waits for them. The memory that they
/// read and write is not given away before. For one thread at a time.
class PeerCopier {
 public:
  explicit PeerCopier(torch::Device to) : to_(to) {}

  /// Begins to copy. Tensors of the host, and those that are there already, are passed on.
  PeerCopies operator()(const std::vector<torch::Tensor>& tensors);

 private:
  bool is_elsewhere(const torch::Tensor& tensor) const;
  torch::Tensor begin_copy(const torch::Tensor& tensor);

  torch::Device to_;
  std::optional<c10::Stream> leaving_, arriving_;
};

}  // namespace lockstep
