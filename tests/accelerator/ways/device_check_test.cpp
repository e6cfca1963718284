// The self-test that users run on their devices, on emulated ones.

#include "lockstep/train/device_check.h"

#include <functional>
#include <gmock/gmock.h>
#include <map>
#include <string>
#include <vector>

#include "tests/accelerator/ways/on_devices.h"
#include <ATen/Context.h>

#include "lockstep/comm/device/device_backends.h"
#include "lockstep/core/error.h"
#include "lockstep/device/arithmetic.h"

namespace lockstep::emulated {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

std::vector<DeviceFinding> findings(const std::function<void(const DeviceFinding&)>& report) {
  install();
  return check_devices(devices_of_type(c10::kPrivateUse1), report);
}

std::vector<std::string> trials_of(const std::vector<DeviceFinding>& findings) {
  std::vector<std::string> trials;
  for (const DeviceFinding& finding : findings) trials.push_back(finding.what);
  return trials;
}

class DeviceCheck : public OverEngines {
 protected:
  std::string engine() const { return nccl_ ? "by NCCL 2.14.9" : "by way of the host"; }
};

TEST_P(DeviceCheck, PassesEveryTrialOnDevicesThatWork) {
  allow_tf32(false, true);  // as LibTorch has it, which is more than the tolerance
  const at::Context& context = at::globalContext();
  const auto found = findings(
      [&](const DeviceFinding& trial) { EXPECT_FALSE(context.allowTF32CuDNN()) << trial.what; });
  EXPECT_TRUE(context.allowTF32CuDNN());
  EXPECT_THAT(found, Each(Field(&DeviceFinding::failure, IsEmpty())));
  EXPECT_THAT(trials_of(found),
      IsSupersetOf({"emulated:0: copies and streams", "emulated:3: training",
          "emulated:1: training in 16-mixed", "emulated:2: snapshot",
          "emulated:0 and emulated:1: copies", "emulated:2 and emulated:3: collectives",
          "all: collectives", "dp", "ddp", "ddp in 16-mixed", "fsdp", "mp", "pp in one process",
          "pp over ranks", "ddp+pp"}));
  for (const DeviceFinding& finding : found) {
    const bool names_engine = finding.what.find("collectives") != std::string::npos;
    if (finding.what.ends_with("arithmetic")) {
      EXPECT_THAT(finding.detail, HasSubstr("GFLOP/s in products")) << finding.what;
    } else {
      EXPECT_EQ(finding.detail, names_engine ? engine() : "") << finding.what;
    }
  }
}

TEST_P(DeviceCheck, PassesWithADeviceThatIsAlone) {
  const auto found = check_devices({device_at(0)}, [](const DeviceFinding&) {});
  EXPECT_THAT(found, Each(Field(&DeviceFinding::failure, IsEmpty())));
  std::map<std::string, std::string> engines;
  for (const DeviceFinding& finding : found) engines[finding.what] = finding.detail;
  EXPECT_EQ(engines.at("emulated:0: collectives of one rank"), engine());
  EXPECT_EQ(engines.at("emulated:0 twice: collectives"), "by way of the host");
  EXPECT_THAT(trials_of(found),
      IsSupersetOf({"emulated:0 twice: dp", "emulated:0 twice: mp",
          "emulated:0 twice: pp in one process", "emulated:0 twice: pp over ranks"}));
}

TEST(DeviceCheckOfFew, SaysWhatItCannotShow) {
  EXPECT_THAT(not_tried_on(1), HasSubstr("NCCL"));
  EXPECT_THAT(not_tried_on(3), HasSubstr("ddp+pp"));
  EXPECT_EQ(not_tried_on(4), "");
}

INSTANTIATE_TEST_SUITE_P(Engines, DeviceCheck, kEngines, name_of_engine);

// Two devices have a trial of each kind, but for that of all.
TEST(DeviceCheckFailure, IsSaidOfTheTrialsThatMeetItAndTheRestGoesOn) {
  install();
  register_device_backend(
      c10::kPrivateUse1, [](Backend&, torch::Device device) -> std::shared_ptr<Backend> {
        throw CommError(concat("no way to ", device.str()));
      });
  const auto found = check_devices({device_at(0), device_at(1)}, [](const DeviceFinding&) {});
  register_device_backend(c10::kPrivateUse1, nullptr);
  EXPECT_THAT(trials_of(found),
      IsSupersetOf({"emulated:0 and emulated:1: collectives", "ddp", "fsdp", "pp over ranks"}));
  for (const DeviceFinding& finding : found) {
    const bool meets = finding.what.find("collectives") != std::string::npos ||
                       finding.what.find("ddp") != std::string::npos || finding.what == "fsdp" ||
                       finding.what == "pp over ranks";
    EXPECT_EQ(finding.failure.find("no way to emulated:") != std::string::npos, meets)
        << finding.what << ": " << finding.failure;
  }
}

}  // namespace
}  // namespace lockstep::emulated
