#include "lockstep/plan/device.h"

#include <algorithm>
#include <cctype>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::plan {
namespace {

// What an image of ResNet50 takes, forward and backward, at 224 x 224: three times 2 x 4.09e9.
constexpr double kResNet50 = 24.54e9;
// Shares of the peak that the published trainings of V100 reach; for devices without one.
constexpr double kShare32 = 380.44 * kResNet50 / 15.7e12;
constexpr double kShareMixed = 893.09 * kResNet50 / 125e12;

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;

// Of a layer's kernels, from a C++ program; they overlap with what the device computes.
constexpr double kStartSeconds = 50e-6;
constexpr double kContextBytes = 0.6e9;

// Of a link's rate in the data sheet, in one direction: an assumption, as are the latencies.
constexpr double kLinkShare = 0.75;

Link pci(double gigabytes) {
  return {.latency = 15e-6, .bytes_per_second = kLinkShare * gigabytes * kGiga};
}
Link nvlink(double gigabytes) {
  return {.latency = 8e-6, .bytes_per_second = kLinkShare * gigabytes * kGiga};
}

constexpr const char* kNvidiaExamples =
    "NVIDIA's DeepLearningExamples, ResNet50 v1.5 on one device, and the data sheet";
constexpr const char* kDataSheet =
    "data sheet; assumes the share of the peak that ResNet50 reaches on a V100";

double flops_at(double images_per_second) { return images_per_second * kResNet50; }

bool is_same(const std::string& one, const std::string& other) {
  return one.size() == other.size() &&
         std::equal(one.begin(), one.end(), other.begin(),
             [](unsigned char a, unsigned char b) { return std::toupper(a) == std::toupper(b); });
}

// A layer's time on the device: its slope, and the start of its kernels for small batches.
CostCurve device_curve(const CostCurve& curve, double factor) {
  if (curve.is_free()) return {};
  constexpr double kFar = 1 << 20;
  const CostCurve::Point& last = curve.points().back();
  const double slope = factor * last.seconds / last.batch;
  const double even = slope > 0 ? kStartSeconds / slope : kFar;
  if (even <= 1) return CostCurve({{1, slope}, {kFar, kFar * slope}});
  if (even >= kFar) return CostCurve({{1, kStartSeconds}, {kFar, kStartSeconds}});
  return CostCurve({{1, kStartSeconds}, {even, kStartSeconds}, {kFar, kFar * slope}});
}

double layers_a_sample(const ModelProfile& profile) {
  double seconds = 0;
  for (const LayerCurves& layer : profile.layers) {
    for (const CostCurve* const curve : {&layer.forward, &layer.backward}) {
      if (!curve->is_free())
        seconds += curve->points().back().seconds / curve->points().back().batch;
    }
  }
  return seconds;
}

}  // namespace

const std::vector<Device>& known_devices() {
  static const std::vector<Device> kDevices{
      {"K80", 12 * kGiga, 240 * kGiga, pci(15.75), flops_at(52), flops_at(52),
          "TensorFlow's benchmarks of 2017, ResNet50 on one GK210 of a K80, and the data sheet"},
      {"V100", 16 * kGiga, 900 * kGiga, nvlink(150), flops_at(380.44), flops_at(893.09),
          kNvidiaExamples},
      {"TITAN-RTX", 24 * kGiga, 672 * kGiga, pci(15.75), flops_at(330), kShareMixed * 130 * kTera,
          "Lambda's TensorFlow benchmark of 2019, ResNet50 in fp32, and the data sheet"},
      {"T4", 16 * kGiga, 320 * kGiga, pci(15.75), kShare32 * 8.1 * kTera, kShareMixed * 65 * kTera,
          kDataSheet},
      {"A100", 40 * kGiga, 1555 * kGiga, nvlink(300), flops_at(909), flops_at(2375),
          kNvidiaExamples},
      {"H100", 80 * kGiga, 3350 * kGiga, nvlink(450), kShare32 * 66.9 * kTera,
          kShareMixed * 989 * kTera, kDataSheet},
      {"L4", 24 * kGiga, 300 * kGiga, pci(31.5), kShare32 * 30.3 * kTera, kShareMixed * 121 * kTera,
          kDataSheet}};
  return kDevices;
}

const Device& device_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Device& device : known_devices()) {
    if (is_same(device.name, name)) return device;
    names.push_back(device.name);
  }
  throw InvalidArgument(concat("plan: there is no device ", printable(name), "; known are ",
      joined(names), did_you_mean(name, names)));
}

ModelProfile on_device(const ModelProfile& profile, const Device& device) {
  check(profile.flops > 0, "plan: the profile of ", profile.model,
      " does not say what a sample takes (flops), so it cannot be moved to a ", device.name);
  const double rate = profile.precision == "32" ? device.flops_32 : device.flops_mixed;
  const double factor = profile.flops / rate / layers_a_sample(profile);
  ModelProfile moved = profile;
  for (LayerCurves& layer : moved.layers) {
    for (const auto time : LayerCurves::times()) layer.*time = device_curve(layer.*time, factor);
  }
  // Each parameter, its gradient and what is kept of it are read, and all but the gradient written.
  moved.optimizer =
      profile.parameter_bytes() * (3 + 2 * profile.state_copies) / device.bytes_per_second;
  moved.rest = {};
  moved.device = device.name;
  moved.source = concat(device.source, "; the layers' shares are those on ", profile.device);
  moved.is_measured = false;
  moved.process_bytes = kContextBytes;
  moved.company = {};
  moved.within = device.within;
  moved.overheads = {};
  return moved;
}

}  // namespace lockstep::plan
