#include "tests/accelerator/emulated_nccl.h"

#include "tests/accelerator/nccl/functions.h"
#include <c10/core/DeviceType.h>

#include "lockstep/comm/device/device_backends.h"
#include "lockstep/comm/device/nccl_api.h"

namespace lockstep::emulated {

UseEmulatedNccl::UseEmulatedNccl() {
  nccl::use_api(&kNcclFunctions);
  register_device_backend(c10::kPrivateUse1, &make_nccl_backend);
}

UseEmulatedNccl::~UseEmulatedNccl() {
  register_device_backend(c10::kPrivateUse1, nullptr);
  nccl::use_api(nullptr);
}

}  // namespace lockstep::emulated
