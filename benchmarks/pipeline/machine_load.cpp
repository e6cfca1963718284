#include "machine_load.h"

#include <algorithm>
#include <fstream>
#include <unistd.h>

#include <torch/version.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"

namespace lockstep::benchmark {
namespace {

// Of the first line of /proc/stat: user nice system idle iowait irq softirq steal.
double busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  file >> word;
  double busy = 0;
  for (int column = 0; column < 8; ++column) {
    double ticks = 0;
    file >> ticks;
    if (column != 3 && column != 4) busy += ticks;
  }
  return busy / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  }
  return "processor without a name";
}

}  // namespace

MachineLoad::MachineLoad() : busy_(busy_seconds()), own_(cpu_seconds()) {}

double MachineLoad::others(int companions) const {
  const double own = companions * (cpu_seconds() - own_);
  const auto cores = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(0.0, busy_seconds() - busy_ - own) / (cores * watch_.seconds());
}

std::string machine_description() {
  return concat(processor(), ", ", ::sysconf(_SC_NPROCESSORS_ONLN), " cores; LibTorch ",
      TORCH_VERSION, "; GLIBC_TUNABLES ", environment("GLIBC_TUNABLES").value_or("not set"));
}

}  // namespace lockstep::benchmark
