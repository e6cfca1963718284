#pragma once

#include <c10/core/ScalarType.h>

#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/comm/reduce_op.h"

namespace lockstep::host {

/// Gives the reduction's name of an element type; throws InvalidArgument for types that cannot be
/// reduced.
reduce::Element reduce_element(at::ScalarType type);

}  // namespace lockstep::host
