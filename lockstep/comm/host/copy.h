#pragma once

#include <cstddef>

#include "lockstep/comm/reduce/reduce_kernel.h"

namespace lockstep::host {

/// Copies bytes; source and destination may be the same, or overlap.
void copy_bytes(
    std::byte* to, const std::byte* from, std::size_t bytes, reduce::Traffic traffic = {});

}  // namespace lockstep::host
