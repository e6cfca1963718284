#include "lockstep/train/device_check.h"

#include <utility>

#include "lockstep/comm/device/nccl_api.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/arithmetic.h"
#include "lockstep/train/device_trials.h"

namespace lockstep {
namespace {

std::string collectives(const Devices& devices) {
  const std::string engine = try_collectives(devices);
  return engine == "nccl" ? "by NCCL " + nccl::version() : "by way of the host";
}

class Checker {
 public:
  explicit Checker(const std::function<void(const DeviceFinding&)>& report) : report_(report) {}

  /// Of a trial that says how it was made.
  void attempt_by(const std::string& what, const std::function<std::string()>& trial) {
    DeviceFinding finding{.what = what};
    const Stopwatch watch;
    try {
      finding.detail = trial();
    } catch (const std::exception& error) {
      const std::string text = error.what();
      finding.failure = text.substr(0, text.find('\n'));
    }
    finding.seconds = watch.seconds();
    report_(finding);
    findings_.push_back(std::move(finding));
  }

  void attempt(const std::string& what, const std::function<void()>& trial) {
    attempt_by(what, [&] {
      trial();
      return std::string();
    });
  }

  std::vector<DeviceFinding> take() { return std::move(findings_); }

 private:
  const std::function<void(const DeviceFinding&)>& report_;
  std::vector<DeviceFinding> findings_;
};

void check_alone(Checker& checker, const Devices& devices) {
  for (const torch::Device& device : devices) {
    const std::string name = device.str() + ": ";
    checker.attempt(name + "copies and streams", [&] { try_copies_and_streams(device); });
    checker.attempt(name + "training", [&] { try_training({}, {device}); });
    checker.attempt(name + "training in 16-mixed",
        [&] { try_training({.precision = Precision::k16Mixed}, {device}); });
    checker.attempt(name + "snapshot", [&] { try_snapshot(device); });
  }
}

void check_pairs(Checker& checker, const Devices& devices) {
  for (std::size_t a = 0; a < devices.size(); ++a) {
    for (std::size_t b = a + 1; b < devices.size(); ++b) {
      const std::string names = concat(devices[a].str(), " and ", devices[b].str(), ": ");
      checker.attempt(names + "copies", [&] {
        try_copies_between(devices[a], devices[b]);
        try_copies_between(devices[b], devices[a]);
      });
      checker.attempt_by(names + "collectives", [&] {
        return collectives({devices[a], devices[b]});
      });
    }
  }
}

void check_ways(Checker& checker, const Devices& all) {
  const Devices two(all.begin(), all.begin() + 2);
  const auto train = [&](const char* name, const TriedWay& way, const Devices& devices) {
    checker.attempt(name, [&] { try_training(way, devices); });
  };
  if (all.size() > 2) checker.attempt_by("all: collectives", [&] { return collectives(all); });
  train("dp", {Parallel::kDp}, two);
  train("ddp", {Parallel::kDdp, 2}, two);
  train("ddp in 16-mixed", {Parallel::kDdp, 2, Precision::k16Mixed}, two);
  train("mp", {Parallel::kMp}, two);
  train("pp in one process", {Parallel::kPp}, two);
  train("pp over ranks", {Parallel::kPp, 2}, two);
  if (all.size() < 4) return;
  train("ddp+pp", {Parallel::kDdpPp, 2}, Devices(all.begin(), all.begin() + 4));
}

}  // namespace

std::vector<DeviceFinding> check_devices(
    torch::DeviceType type, const std::function<void(const DeviceFinding&)>& report) {
  Devices devices;
  for (int index = 0; index < device_count(type); ++index)
    devices.emplace_back(type, static_cast<torch::DeviceIndex>(index));
  check(!devices.empty(), "check_devices: there is no device of type ", device_type_name(type));
  const ExactFloat32 exact;
  Checker checker(report);
  check_alone(checker, devices);
  check_pairs(checker, devices);
  if (devices.size() >= 2) check_ways(checker, devices);
  return checker.take();
}

std::string not_tried_on(int devices) {
  if (devices < 2)
    return "one device cannot show collectives (NCCL), copies between devices, dp, ddp, mp and pp";
  return devices < 4 ? "less than four devices cannot show ddp+pp" : "";
}

}  // namespace lockstep
