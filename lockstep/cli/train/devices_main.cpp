#include <algorithm>
#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>

#include <torch/version.h>

#include "lockstep/cli/env.h"
#include "lockstep/cli/train/mains.h"
#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/train/device_check.h"
#include "lockstep/train/strategy/devices.h"

namespace lockstep::cli {
namespace {

// What nvidia-smi knows; nothing of other accelerators.
void print_gpus() {
  const auto facts = nvidia_smi_facts();
  for (const auto& gpu : facts.value("gpus", nlohmann::ordered_json::array()))
    std::cout << "GPU " << gpu["index"] << ": " << gpu["name"].get<std::string>() << ", driver "
              << gpu["driver"].get<std::string>() << '\n';
}

void print_finding(const DeviceFinding& finding) {
  std::cout << (finding.failure.empty() ? "ok      " : "failed  ") << finding.what;
  if (!finding.detail.empty()) std::cout << ' ' << finding.detail;
  if (!finding.failure.empty()) std::cout << ": " << finding.failure;
  std::cout << std::endl;
}

}  // namespace

int check_all_devices(const std::string& type) {
  TrainOptions options;
  options.device = type;
  const DeviceChoice choice = choose_device(options);
  if (choice.type == torch::kCPU)
    throw std::system_error(ENODEV, std::generic_category(),
        concat(
            "env: there is no accelerator to check", choice.idle.empty() ? "" : "; ", choice.idle));
  std::cout << "Checking " << choice.count << " of type " << device_type_name(choice.type)
            << " with LibTorch " << TORCH_VERSION << ", Lockstep " << LOCKSTEP_VERSION << '\n';
  print_gpus();
  const auto findings = check_devices(devices_of_type(choice.type), print_finding);
  const auto failed = std::ranges::count_if(
      findings, [](const DeviceFinding& finding) { return !finding.failure.empty(); });
  const std::string missing = not_tried_on(choice.count);
  if (!missing.empty()) std::cout << "not tried: " << missing << '\n';
  std::cout << "verdict: " << (failed == 0 ? "everything that was tried works" : "not ready")
            << ", " << findings.size() - static_cast<std::size_t>(failed) << " trials passed, "
            << failed << " failed\n";
  return failed == 0 ? 0 : 1;
}

}  // namespace lockstep::cli
