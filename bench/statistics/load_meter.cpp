#include "bench/statistics/load_meter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/core/text.h"

namespace lockstep::bench {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeastToJudge = 0.1;  // CPU seconds; the counters move by 0.01

double busy_seconds(const std::vector<int>& cpus) {
  return busy_ticks(text_in("/proc/stat"), cpus) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double cpu_seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double own_seconds() {
  double sum = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage use{};
    ::getrusage(who, &use);
    sum += cpu_seconds(use.ru_utime) + cpu_seconds(use.ru_stime);
  }
  return sum;
}

/// Reads what follows a core's name; a guest's time is in `user` already.
double busy_of(std::istream& numbers) {
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0,
         stolen = 0;
  numbers >> user >> nice >> system >> idle >> waiting >> interrupts >> soft >> stolen;
  return numbers ? user + nice + system + interrupts + soft + stolen : kUnknown;
}

}  // namespace

CpuUse cpu_use(double seconds, double busy_cpu, double own_cpu, std::size_t cores) {
  CpuUse use{.seconds = seconds, .own_cpu = own_cpu};
  const bool is_known =
      std::isfinite(busy_cpu) && (own_cpu < kLeastToJudge || busy_cpu >= own_cpu / 2);
  // Ticks are coarser than what we know of ourselves, so the rest may be a little less than 0.
  use.other_cpu = is_known ? std::max(0.0, busy_cpu - own_cpu) : kUnknown;
  const double all = seconds * static_cast<double>(cores);
  use.other_share = all > 0 && is_known ? std::min(1.0, use.other_cpu / all) : kUnknown;
  return use;
}

LoadMeter::LoadMeter() : cpus_(available_cpus()), busy_(busy_seconds(cpus_)), own_(own_seconds()) {}

CpuUse LoadMeter::read() const {
  const double seconds = watch_.seconds();
  return cpu_use(seconds, busy_seconds(cpus_) - busy_, own_seconds() - own_, cpus_.size());
}

double busy_ticks(const std::string& proc_stat, const std::vector<int>& cpus) {
  std::map<std::string, double> busy;
  std::istringstream text(proc_stat);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string name;
    if (words >> name && name.starts_with("cpu")) busy[name] = busy_of(words);
  }
  double sum = cpus.empty() ? kUnknown : 0;
  for (const int cpu : cpus) {
    const auto found = busy.find("cpu" + std::to_string(cpu));
    sum += found == busy.end() ? kUnknown : found->second;
  }
  return sum;
}

double interrupt_ticks(const std::string& proc_stat) {
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0;
  std::string name;
  std::istringstream text(proc_stat);
  text >> name >> user >> nice >> system >> idle >> waiting >> interrupts >> soft;
  return text && name == "cpu" ? interrupts + soft : 0;
}

double interrupt_seconds() {
  return interrupt_ticks(text_in("/proc/stat")) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double calibrate() {
  // Each step needs the one before, so that neither more units nor wider registers make it faster.
  constexpr int kSteps = 12'000'000;
  static volatile std::uint64_t memory = 1;  // the compiler knows neither start nor use
  const Stopwatch watch;
  std::uint64_t value = memory;
  for (int step = 0; step < kSteps; ++step) {
    value ^= value >> 29;
    value *= 0xbf58476d1ce4e5b9;
  }
  memory = value;
  return watch.seconds();
}

}  // namespace lockstep::bench
