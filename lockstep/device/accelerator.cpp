#include "lockstep/device/accelerator.h"

#include <algorithm>
#include <array>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep {

// Not at::getAccelerator(), which asks for CUDA's hooks: LibTorch keeps its first answer for good,
// and where it was "none", load_cuda() comes too late.
std::optional<torch::DeviceType> accelerator_type() {
  constexpr std::array kTypes = {
      c10::kPrivateUse1, c10::kCUDA, c10::kXPU, c10::kHIP, c10::kMPS, c10::kMTIA, c10::kHPU};
  const auto found = std::ranges::find_if(
      kTypes, [](torch::DeviceType type) { return c10::impl::hasDeviceGuardImpl(type); });
  return found == kTypes.end() ? std::nullopt : std::optional(*found);
}

int device_count(torch::DeviceType type) {
  const bool is_known = c10::impl::hasDeviceGuardImpl(type);
  return is_known ? c10::impl::getDeviceGuardImpl(type)->deviceCount() : 0;
}

std::string device_type_name(torch::DeviceType type) {
  return c10::DeviceTypeName(type, /*lower_case=*/true);
}

void use_device(torch::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

void synchronize(torch::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeDevice(device.has_index() ? device.index() : guard.getDevice().index());
}

c10::Stream side_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

c10::Stream current_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void wait_for(const c10::Stream& waiting, const c10::Stream& awaited) {
  c10::Event event(awaited.device_type());
  event.record(awaited);
  event.block(waiting);
}

DeviceCopier::DeviceCopier(torch::Device device) : device_(device) {
  if (!device.is_cpu()) stream_ = side_stream(device);
}

// The copy belongs to the side stream, so the caching allocator must know who else uses it.
torch::Tensor DeviceCopier::operator()(const torch::Tensor& tensor) {
  if (!stream_ || !tensor.defined() || tensor.device() == device_) return tensor;
  const c10::Stream current = current_stream(device_);
  torch::Tensor copy;
  {
    const c10::StreamGuard guard(*stream_);
    copy = tensor.to(device_, /*non_blocking=*/true);
  }
  wait_for(current, *stream_);
  copy.record_stream(current);
  return copy;
}

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
