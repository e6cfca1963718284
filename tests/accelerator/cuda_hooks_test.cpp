// LibTorch keeps what it is told when it first asks for CUDA, so nothing may ask before the library
// for CUDA is loaded. A program without emulated devices, which would answer first.

#include <cstdlib>
#include <gmock/gmock.h>
#include <iostream>

#include "tests/support/temporary_folder.h"
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/train/state/same_on_ranks.h"
#include "lockstep/train/strategy/devices.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

struct LoadedHooks final : at::CUDAHooksInterface {
  bool isBuilt() const override { return true; }
};

// As the library does when it is loaded.
void register_hooks() {
  if (c10::impl::hasDeviceGuardImpl(c10::kCUDA)) return;  // the library itself is there
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](at::CUDAHooksArgs) { return std::make_unique<LoadedHooks>(); });
}

TEST(CudaHooks, NobodyAsksForThemBeforeADeviceIsChosen) {
  run_ranks(2, [](const ProcessGroup& world) {
    check_same_flags({}, world);
    world.all_reduce(at::ones({8})).wait();
  });
  (void)choose_device({});
  const ThreadModes modes;
  register_hooks();
  EXPECT_TRUE(at::detail::getCUDAHooks().isBuilt()) << "somebody asked too early";
}

// In a process of its own, whose LibTorch remembers.
[[noreturn]] void ask_too_early() {
  static const c10::impl::NoOpDeviceGuardImpl<c10::kCUDA> kGuard;
  (void)at::globalContext().hasCUDA();
  register_hooks();
  c10::impl::registerDeviceGuard(c10::kCUDA, &kGuard);
  std::cerr << load_cuda();
  std::exit(0);
}

TEST(CudaHooks, WhoAskedTooEarlyIsTold) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ask_too_early(), ::testing::ExitedWithCode(0), "call load_cuda\\(\\) first");
}

TEST(CudaHooks, ALibTorchForTheCpuIsNamedWithWhatToInstall) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT(load_cuda_from(folder.str()),
      ::testing::AllOf(HasSubstr("this LibTorch computes on the CPU alone: " + folder.str()),
          HasSubstr("./dev setup --gpu"), HasSubstr("LOCKSTEP_TORCH_DIR")));
}

}  // namespace
}  // namespace lockstep
