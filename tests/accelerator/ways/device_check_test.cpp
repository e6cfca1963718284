// The self-test that users run on their devices, on emulated ones.

#include "lockstep/train/device_check.h"

#include <gmock/gmock.h>
#include <optional>
#include <string>
#include <vector>

#include "tests/accelerator/emulated_nccl.h"
#include "tests/accelerator/install.h"

#include "lockstep/comm/device/routed_backend.h"
#include "lockstep/core/error.h"

namespace lockstep::emulated {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

std::vector<DeviceFinding> findings() {
  install();
  return check_devices(c10::kPrivateUse1, [](const DeviceFinding&) {});
}

std::vector<std::string> trials_of(const std::vector<DeviceFinding>& findings) {
  std::vector<std::string> trials;
  for (const DeviceFinding& finding : findings) trials.push_back(finding.what);
  return trials;
}

class DeviceCheck : public ::testing::TestWithParam<bool> {};

TEST_P(DeviceCheck, PassesEveryTrialOnDevicesThatWork) {
  std::optional<UseEmulatedNccl> nccl;
  if (GetParam()) nccl.emplace();
  const auto found = findings();
  EXPECT_THAT(found, Each(Field(&DeviceFinding::failure, IsEmpty())));
  EXPECT_THAT(trials_of(found),
      IsSupersetOf({"emulated:0: copies and streams", "emulated:3: training",
          "emulated:0 and emulated:1: copies", "emulated:2 and emulated:3: collectives",
          "all: collectives", "dp", "ddp", "mp", "pp in one process", "pp over ranks"}));
}

INSTANTIATE_TEST_SUITE_P(OverNcclAndTheHost, DeviceCheck, ::testing::Bool());

TEST(DeviceCheckFailure, IsSaidOfTheTrialsThatMeetItAndTheRestGoesOn) {
  register_device_backend(
      c10::kPrivateUse1, [](Backend&, torch::Device device) -> std::shared_ptr<Backend> {
        throw CommError(concat("no way to ", device.str()));
      });
  const auto found = findings();
  register_device_backend(c10::kPrivateUse1, nullptr);
  for (const DeviceFinding& finding : found) {
    const bool meets = finding.what.find("collectives") != std::string::npos ||
                       finding.what == "ddp" || finding.what == "pp over ranks";
    EXPECT_EQ(finding.failure.find("no way to emulated:") != std::string::npos, meets)
        << finding.what << ": " << finding.failure;
  }
}

}  // namespace
}  // namespace lockstep::emulated
