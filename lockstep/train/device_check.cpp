#include "lockstep/train/device_check.h"

#include <utility>

#include "lockstep/comm/device/nccl_api.h"
#include "lockstep/comm/device/routed_backend.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/arithmetic.h"
#include "lockstep/train/device_trials.h"

namespace lockstep {
namespace {

std::string engine_text(const std::string& engine) {
  return engine == "nccl" ? "by NCCL " + nccl::version() : "by way of the host";
}

std::string collectives(const Devices& devices) { return engine_text(try_collectives(devices)); }

// NCCL takes no two ranks on one GPU.
class NoEngine {
 public:
  explicit NoEngine(torch::DeviceType type)
      : type_(type), before_(register_device_backend(type, nullptr)) {}
  ~NoEngine() { register_device_backend(type_, before_); }
  NoEngine(const NoEngine&) = delete;
  NoEngine& operator=(const NoEngine&) = delete;

 private:
  torch::DeviceType type_;
  MakeDeviceBackend before_;
};

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

  void train(const std::string& what, const TriedWay& way, const Devices& devices) {
    attempt(what, [&] { try_training(way, devices); });
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
    checker.attempt_by(name + "arithmetic", [&] { return speed_text(device); });
    checker.train(name + "training", {}, {device});
    checker.train(name + "training in 16-mixed", {.precision = Precision::k16Mixed}, {device});
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
  if (all.size() > 2) checker.attempt_by("all: collectives", [&] { return collectives(all); });
  checker.train("dp", {Parallel::kDp}, two);
  checker.train("ddp", {Parallel::kDdp, 2}, two);
  checker.train("ddp in 16-mixed", {Parallel::kDdp, 2, Precision::k16Mixed}, two);
  checker.train("mp", {Parallel::kMp}, two);
  checker.train("pp in one process", {Parallel::kPp}, two);
  checker.train("pp over ranks", {Parallel::kPp, 2}, two);
  if (all.size() < 4) return;
  checker.train("ddp+pp", {Parallel::kDdpPp, 2}, Devices(all.begin(), all.begin() + 4));
}

// Without ddp, whose ranks are threads here: LibTorch computes all backward of a device on one
// thread, and in it each of two ranks would wait for the other.
void check_twice(Checker& checker, const torch::Device& device) {
  checker.attempt_by(
      device.str() + ": collectives of one rank", [&] { return engine_text(try_engine(device)); });
  const NoEngine by_way_of_the_host(device.type());
  const std::string prefix = device.str() + " twice: ";
  const Devices two{device, device};
  checker.attempt_by(prefix + "collectives", [&] { return collectives(two); });
  checker.train(prefix + "dp", {Parallel::kDp}, two);
  checker.train(prefix + "mp", {Parallel::kMp}, two);
  checker.train(prefix + "pp in one process", {Parallel::kPp}, two);
  checker.train(prefix + "pp over ranks", {Parallel::kPp, 2}, two);
}

}  // namespace

Devices devices_of_type(torch::DeviceType type) {
  Devices devices;
  for (int index = 0; index < device_count(type); ++index)
    devices.emplace_back(type, static_cast<torch::DeviceIndex>(index));
  return devices;
}

std::vector<DeviceFinding> check_devices(
    const Devices& devices, const std::function<void(const DeviceFinding&)>& report) {
  check(!devices.empty(), "check_devices: there is no device to check");
  const ExactFloat32 exact;
  Checker checker(report);
  check_alone(checker, devices);
  check_pairs(checker, devices);
  if (devices.size() == 1) check_twice(checker, devices.front());
  if (devices.size() >= 2) check_ways(checker, devices);
  return checker.take();
}

std::string not_tried_on(int devices) {
  if (devices < 2)
    return "one device cannot show copies and collectives (NCCL) between devices, ddp and ddp+pp; "
           "dp, mp and pp ran on it twice";
  return devices < 4 ? "less than four devices cannot show ddp+pp" : "";
}

}  // namespace lockstep
