#include "lockstep/nn/autocast.h"

#include <ATen/autocast_mode.h>

namespace lockstep::nn {

Autocast::Autocast(c10::DeviceType device, c10::ScalarType type, bool enabled)
    : device_(device),
      outer_enabled_(at::autocast::is_autocast_enabled(device)),
      outer_type_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_dtype(device, type);
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  // The cache holds parameters in the shorter type: the next optimizer step makes them stale.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, outer_enabled_);
  at::autocast::set_autocast_dtype(device_, outer_type_);
}

}  // namespace lockstep::nn
