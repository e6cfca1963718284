#pragma once

#include "lockstep/comm/device/nccl_api.h"

namespace lockstep::emulated {

/// NCCL's functions on the emulated streams, which libnccl.so.2 has by NCCL's names.
extern const nccl::Api kNcclFunctions;

}  // namespace lockstep::emulated
