// Gives `lockstep train` emulated devices, between which it uses the NCCL that it finds.

#include "tests/accelerator/runtime.h"

#include "lockstep/comm/device/device_backends.h"

namespace lockstep::emulated {
namespace {

const bool kIsInstalled = [] {
  install();
  register_device_backend(c10::kPrivateUse1, &make_nccl_backend);
  return true;
}();

}  // namespace
}  // namespace lockstep::emulated
