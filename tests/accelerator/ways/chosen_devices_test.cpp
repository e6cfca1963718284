// What a run computes on, by its flags and the devices of the host: four emulated ones.

#include <gmock/gmock.h>
#include <string>
#include <vector>

#include "tests/accelerator/runtime.h"

#include "lockstep/core/error.h"
#include "lockstep/train/strategy/devices.h"

namespace lockstep::emulated {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TrainOptions asking_for(const std::string& device, const std::vector<std::string>& places = {}) {
  TrainOptions options;
  options.device = device;
  options.place_devices = places;
  if (!places.empty()) options.places = static_cast<int>(places.size());
  return options;
}

class ChosenDevice : public ::testing::Test {
 protected:
  ChosenDevice() { install(); }

  static void expect_refused(const TrainOptions& options, const std::string& why) {
    EXPECT_THAT([&] { choose_device(options); }, ThrowsMessage<InvalidArgument>(HasSubstr(why)));
  }
};

TEST_F(ChosenDevice, IsTheAcceleratorUnlessTheCpuIsAskedFor) {
  for (const char* const device : {"auto", "emulated"}) {
    const DeviceChoice choice = choose_device(asking_for(device));
    EXPECT_EQ(choice.type, c10::kPrivateUse1) << device;
    EXPECT_EQ(choice.count, 4) << device;
    EXPECT_EQ(choice.idle, "") << device;
  }
  const DeviceChoice cpu = choose_device(asking_for("cpu"));
  EXPECT_EQ(cpu.type, torch::kCPU);
  EXPECT_EQ(cpu.count, 0);
}

TEST_F(ChosenDevice, IsThatOfThePlacesWhereTheyAreNamed) {
  const std::vector<std::string> two = {"emulated:0", "emulated:3"};
  EXPECT_EQ(choose_device(asking_for("auto", two)).type, c10::kPrivateUse1);
  EXPECT_EQ(choose_device(asking_for("emulated", two)).type, c10::kPrivateUse1);
  expect_refused(asking_for("cpu", two), "--device cpu contradicts --places emulated:0,emulated:3");
  expect_refused(asking_for("auto", {"emulated:0", "cuda:0"}), "must name devices of one type");
  expect_refused(asking_for("auto", {"emulated:1", "emulated:1"}), "names emulated:1 twice");
}

TEST_F(ChosenDevice, IsATypeThatLibTorchKnowsAndNotANumber) {
  expect_refused(asking_for("emulatedx"), "LibTorch knows no device emulatedx");
  expect_refused(asking_for("emulated:1"), "--device names a type, such as emulated");
}

class PlacesOfProcess : public ChosenDevice {
 protected:
  static std::vector<std::string> names(
      const TrainOptions& options, int places, const RankOfHost& own = {}) {
    std::vector<std::string> found;
    for (const torch::Device& device :
        devices_of(places_of_process(options, choose_device(options), places, own)))
      found.push_back(device.str());
    return found;
  }

  static void expect_none(
      const TrainOptions& options, int places, const RankOfHost& own, const std::string& why) {
    EXPECT_THAT(
        [&] { names(options, places, own); }, ThrowsMessage<InvalidArgument>(HasSubstr(why)));
  }
};

TEST_F(PlacesOfProcess, AreTheNextDevicesOfEachRankOfTheHost) {
  const TrainOptions options = asking_for("auto");
  EXPECT_THAT(names(options, 1), ElementsAre("emulated:0"));
  EXPECT_THAT(names(options, 1, {2, 3}), ElementsAre("emulated:2"));
  EXPECT_THAT(names(options, 2, {1, 2}), ElementsAre("emulated:2", "emulated:3"));
  expect_none(options, 3, {1, 2}, "rank 1 of this host needs emulated:5, but there are 4 devices");
  EXPECT_THAT(names(asking_for("cpu"), 1, {1, 2}), ElementsAre("cpu"));
}

TEST_F(PlacesOfProcess, AreThoseThatAreNamedInOneProcess) {
  const auto two = asking_for("auto", {"emulated:3", "emulated:1"});
  EXPECT_THAT(names(two, 2), ElementsAre("emulated:3", "emulated:1"));
  expect_none(two, 2, {0, 2},
      "this host has 2 ranks, which would all compute there; give their "
      "number, as --places 2");
  expect_none(asking_for("auto", {"emulated:4"}), 1, {}, "there is no emulated:4; this host has 4");
  expect_none(asking_for("auto", {"emulated"}), 1, {}, "there is no emulated;");
}

TEST_F(PlacesOfProcess, AreSharedByRanksOnRequest) {
  TrainOptions options = asking_for("auto");
  options.share_devices = true;
  EXPECT_THAT(names(options, 1, {5, 6}), ElementsAre("emulated:1"));
  EXPECT_THAT(names(options, 3, {1, 2}), ElementsAre("emulated:3", "emulated:0", "emulated:1"));
  expect_none(options, 5, {}, "5 places of one process need as many devices, and this host has 4");
  options.device = "cpu";
  expect_none(options, 1, {0, 2}, "--share-devices is for accelerators, and this host computes on");
}

TEST_F(PlacesOfProcess, AreToldWithWhatStaysIdle) {
  const auto text = [](int places, int ranks) {
    const DeviceChoice choice = choose_device({});
    return describe(choice, places_of_process({}, choice, places, {0, ranks}), ranks);
  };
  EXPECT_EQ(text(4, 1), "computing on emulated:0, emulated:1, emulated:2, emulated:3");
  EXPECT_THAT(text(1, 1), HasSubstr("computing on emulated:0; 3 more are idle"));
  EXPECT_EQ(text(1, 3),
      "computing on emulated:0 and the like on 2 more ranks here; 1 more is idle: "
      "use more ranks (--nproc-per-node) or --places");
  EXPECT_EQ(describe(DeviceChoice(), {Place()}, 1), "");
  EXPECT_EQ(describe({.idle = "GPUs are not used: no driver"}, {Place()}, 1),
      "GPUs are not used: no driver");
}

}  // namespace
}  // namespace lockstep::emulated
