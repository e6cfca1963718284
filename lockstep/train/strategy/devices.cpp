#include "lockstep/train/strategy/devices.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <c10/util/Exception.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/accelerator.h"

namespace lockstep {
namespace {

torch::Device parse_device(const std::string& text) {
  try {
    return torch::Device(text);
  } catch (const c10::Error&) {
    throw InvalidArgument(
        concat("train: LibTorch knows no device ", text, "; name it as cpu, cuda or cuda:1"));
  }
}

// The places decide where they are named.
std::optional<torch::DeviceType> asked_type(const TrainOptions& options) {
  if (options.place_devices.empty()) {
    if (options.device == "auto") return std::nullopt;
    const torch::Device device = parse_device(options.device);
    check(!device.has_index(), "train: --device names a type, such as ",
        device_type_name(device.type()), "; a rank takes the next device, or name them: --places ",
        options.device);
    return device.type();
  }
  const torch::DeviceType type = parse_device(options.place_devices.front()).type();
  const std::vector<std::string>& names = options.place_devices;
  for (auto name = names.begin(); name != names.end(); ++name) {
    check(parse_device(*name).type() == type,
        "train: --places must name devices of one type: ", joined(names, ","));
    check(std::find(names.begin(), name, *name) == name, "train: --places names ", *name, " twice");
  }
  const bool agrees = options.device == "auto" || parse_device(options.device).type() == type;
  check(agrees, "train: --device ", options.device, " contradicts --places ",
      joined(options.place_devices, ","));
  return type;
}

DeviceChoice demanded(torch::DeviceType type) {
  const std::string reason = reason_against(type);
  if (reason.empty()) return {.type = type, .count = device_count(type)};
  throw std::system_error(ENODEV, std::generic_category(),
      concat("train: --device ", device_type_name(type), ": ", reason));
}

DeviceChoice automatic() {
  const auto known = accelerator_type();
  if (known && device_count(*known) > 0) return demanded(*known);
  const auto driven = driven_type();
  if (!driven) return {};
  const std::string reason = reason_against(*driven);
  if (reason.empty()) return demanded(*driven);
  return {.idle = concat("GPUs are not used: ", reason)};
}

torch::Device device_at(const TrainOptions& options, const DeviceChoice& choice, int number) {
  if (options.place_devices.empty()) return {choice.type, static_cast<torch::DeviceIndex>(number)};
  const std::string& name = options.place_devices[static_cast<std::size_t>(number)];
  const torch::Device device = parse_device(name);
  check(device.has_index() && device.index() < choice.count, "train: --places: there is no ", name,
      "; this host has ", choice.count, ", from ", device_type_name(choice.type), ":0");
  return device;
}

}  // namespace

DeviceChoice choose_device(const TrainOptions& options) {
  const auto type = asked_type(options);
  if (!type) return automatic();
  return *type == torch::kCPU ? DeviceChoice() : demanded(*type);
}

std::vector<Place> places_of_process(
    const TrainOptions& options, const DeviceChoice& choice, int places, RankOfHost own) {
  if (choice.type == torch::kCPU) {
    check(!options.share_devices,
        "train: --share-devices is for accelerators, and this host computes on its cores, which "
        "its ranks share anyway; leave it out, or name an accelerator as --device");
    return places > 1 ? cpu_places(places) : std::vector<Place>(1);
  }
  const bool is_named = !options.place_devices.empty(), is_shared = options.share_devices;
  check(!is_named || own.ranks == 1,
      "train: --places names the devices of one process, and this host has ", own.ranks,
      " ranks, which would all compute there; give their number, as --places ", places,
      ": each rank takes the next");
  check(!is_shared || places <= choice.count, "train: --share-devices is for ranks: ", places,
      " places of one process need as many devices, and this host has ", choice.count);
  const int first = is_shared ? own.rank * places % choice.count : own.rank * places;
  const std::string name = device_type_name(choice.type);
  check(is_named || is_shared || first + places <= choice.count, "train: rank ", own.rank,
      " of this host needs ", name, ":", first + places - 1, ", but there are ", choice.count,
      " devices of type ", name,
      "; start fewer ranks or places, or add --share-devices or --device cpu");
  const auto number = [&](int place) { return is_named ? place : (first + place) % choice.count; };
  std::vector<Place> found;
  for (int place = 0; place < places; ++place)
    found.push_back({device_at(options, choice, number(place)), {}});
  return found;
}

std::vector<torch::Device> devices_of(const std::vector<Place>& places) {
  std::vector<torch::Device> devices;
  for (const Place& place : places) devices.push_back(place.device);
  return devices;
}

std::string describe(const DeviceChoice& choice, const std::vector<Place>& places, int processes) {
  if (choice.type == torch::kCPU) return choice.idle;
  std::vector<std::string> names;
  for (const Place& place : places) names.push_back(describe(place));
  std::string text = "computing on " + joined(names);
  if (processes > 1) text += concat(" and the like on ", processes - 1, " more ranks here");
  const int idle = choice.count - processes * static_cast<int>(places.size());
  if (idle > 0)
    text += concat("; ", idle, idle == 1 ? " more is" : " more are",
        " idle: use more ranks (--nproc-per-node) or --places");
  return text;
}

}  // namespace lockstep
