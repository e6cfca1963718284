#include "lockstep/bench/statistics/proc_stat.h"

#include <limits>
#include <map>
#include <sstream>

namespace lockstep::bench {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// Reads what follows a core's name; a guest's time is in `user` already.
double busy_of(std::istream& numbers) {
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0,
         stolen = 0;
  numbers >> user >> nice >> system >> idle >> waiting >> interrupts >> soft >> stolen;
  return numbers ? user + nice + system + interrupts + soft + stolen : kUnknown;
}

}  // namespace

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

}  // namespace lockstep::bench
