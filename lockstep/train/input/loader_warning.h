#pragma once

#include <optional>
#include <string>

#include "lockstep/train/record/meter.h"

namespace lockstep {

/// Says that steps wait for their images, and what to do, if that takes a fifth of their time or
/// more.
std::optional<std::string> slow_loader_warning(const MeterReading& reading, int workers);

}  // namespace lockstep
