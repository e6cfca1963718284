#include "lockstep/bench/statistics/load_meter.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/bench/statistics/proc_stat.h"
#include "lockstep/launch/cpu_share.h"

namespace lockstep::bench {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeastToJudge = 0.1;  // CPU seconds; the counters move by 0.01

double busy_seconds(const std::vector<int>& cpus) {
  std::ifstream file("/proc/stat");
  std::ostringstream text;
  text << file.rdbuf();
  return busy_ticks(text.str(), cpus) / static_cast<double>(::sysconf(_SC_CLK_TCK));
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

}  // namespace

CpuUse cpu_use(double seconds, double busy_cpu, double own_cpu, std::size_t cores) {
  CpuUse use{.seconds = seconds, .own_cpu = own_cpu};
  const bool is_told =
      std::isfinite(busy_cpu) && (own_cpu < kLeastToJudge || busy_cpu >= own_cpu / 2);
  // Ticks are coarser than what we know of ourselves, so the rest may be a little less than 0.
  use.other_cpu = is_told ? std::max(0.0, busy_cpu - own_cpu) : kUnknown;
  const double all = seconds * static_cast<double>(cores);
  use.other_share = all > 0 && is_told ? std::min(1.0, use.other_cpu / all) : kUnknown;
  return use;
}

LoadMeter::LoadMeter()
    : cpus_(launch::available_cpus()), busy_(busy_seconds(cpus_)), own_(own_seconds()) {}

CpuUse LoadMeter::read() const {
  const double seconds = watch_.seconds();
  return cpu_use(seconds, busy_seconds(cpus_) - busy_, own_seconds() - own_, cpus_.size());
}

}  // namespace lockstep::bench
