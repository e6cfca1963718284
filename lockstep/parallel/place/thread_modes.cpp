#include "lockstep/parallel/place/thread_modes.h"

#include <ATen/autocast_mode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "lockstep/device/accelerator.h"

namespace lockstep {
namespace {

std::vector<c10::Stream> current_streams() {
  std::vector<c10::Stream> streams;
  const auto type = accelerator_type();
  const int devices = type ? device_count(*type) : 0;
  for (int index = 0; index < devices; ++index) {
    const c10::Device device(*type, static_cast<c10::DeviceIndex>(index));
    streams.push_back(c10::impl::getDeviceGuardImpl(*type)->getStream(device));
  }
  return streams;
}

}  // namespace

ThreadModes::ThreadModes()
    : autocast_cache_(at::autocast::is_autocast_cache_enabled()), streams_(current_streams()) {
  for (const auto device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    autocast_types_.emplace_back(device, at::autocast::get_autocast_dtype(device));
  }
  std::fegetenv(&arithmetic_);
}

void ThreadModes::install_what_the_state_lacks() const {
  for (const auto& [device, type] : autocast_types_) {
    at::autocast::set_autocast_dtype(device, type);
  }
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
  for (const c10::Stream& stream : streams_)
    c10::impl::getDeviceGuardImpl(stream.device_type())->exchangeStream(stream);
  std::fesetenv(&arithmetic_);
}

// Whether autocast is on is a dispatch key, which the state carries.
ThreadModes::Scope::Scope(const ThreadModes& modes) : guard_(modes.state_) {
  modes.install_what_the_state_lacks();
}

ThreadModes::Scope::~Scope() { outer_.install_what_the_state_lacks(); }

}  // namespace lockstep
