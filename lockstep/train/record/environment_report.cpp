#include "lockstep/train/record/environment_report.h"

#include <fstream>
#include <thread>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <torch/version.h>

namespace lockstep {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const auto colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "unknown";
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace

std::string environment_report(const ProcessGroup& world) {
  const nlohmann::ordered_json report = {
      {"v", 1},
      {"lockstep", LOCKSTEP_VERSION},
      {"libtorch", TORCH_VERSION},
      {"compiler", __VERSION__},
      {"host", host_name()},
      {"cpu", processor_name()},
      {"cores", std::thread::hardware_concurrency()},
      {"world_size", world.size()},
      {"backend", world.backend_name()},
      {"threads", at::get_num_threads()}};
  return report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep
