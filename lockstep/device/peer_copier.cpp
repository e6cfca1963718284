#include "lockstep/device/peer_copier.h"

#include <c10/core/StreamGuard.h>

#include "lockstep/device/accelerator.h"

namespace lockstep {

// The memory belongs to the arriving stream, so the allocator must know who else uses it.
std::vector<torch::Tensor> PeerCopies::wait() const {
  if (arrived) {
    const c10::Stream current = current_stream(arrived->device());
    arrived->block(current);
    for (const torch::Tensor& tensor : tensors)
      if (tensor.defined() && tensor.device() == current.device()) tensor.record_stream(current);
  }
  return tensors;
}

PeerCopies PeerCopier::operator()(const std::vector<torch::Tensor>& tensors) {
  PeerCopies copies;
  bool is_any_copied = false;
  for (const torch::Tensor& tensor : tensors) {
    const bool is_copied = is_elsewhere(tensor);
    copies.tensors.push_back(is_copied ? begin_copy(tensor) : tensor);
    is_any_copied |= is_copied;
  }
  if (is_any_copied) copies.arrived.emplace(to_.type()).record(*arriving_);
  return copies;
}

bool PeerCopier::is_elsewhere(const torch::Tensor& tensor) const {
  return tensor.defined() && !tensor.is_cpu() && !to_.is_cpu() && tensor.device() != to_;
}

torch::Tensor PeerCopier::begin_copy(const torch::Tensor& tensor) {
  if (!leaving_ || leaving_->device() != tensor.device()) leaving_ = side_stream(tensor.device());
  if (!arriving_) arriving_ = side_stream(to_);
  wait_for(*leaving_, current_stream(tensor.device()));
  const c10::MultiStreamGuard streams(std::vector<c10::Stream>{*leaving_, *arriving_});
  const torch::Tensor copy = tensor.detach().to(to_, /*non_blocking=*/true);
  tensor.record_stream(*leaving_);
  return copy.set_requires_grad(tensor.requires_grad());
}

}  // namespace lockstep
