#include "lockstep/parallel/place/thread_modes.h"

#include <ATen/autocast_mode.h>

namespace lockstep {

ThreadModes::ThreadModes() : autocast_cache_(at::autocast::is_autocast_cache_enabled()) {
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
  std::fesetenv(&arithmetic_);
}

// Whether autocast is on is a dispatch key, which the state carries.
ThreadModes::Scope::Scope(const ThreadModes& modes) : guard_(modes.state_) {
  modes.install_what_the_state_lacks();
}

ThreadModes::Scope::~Scope() { outer_.install_what_the_state_lacks(); }

}  // namespace lockstep
