#include "lockstep/plan/profile/company.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

// Between whole numbers of busy places on a straight line.
double item_of(const std::vector<double>& slowdown, double busy) {
  if (busy <= 1) return slowdown.front();
  const auto below = static_cast<std::size_t>(busy);
  if (below >= slowdown.size()) return slowdown.back();
  const double share = busy - static_cast<double>(below);
  return slowdown[below - 1] + share * (slowdown[below] - slowdown[below - 1]);
}

double slowed(const std::vector<double>& slowdown, double busy, int cores) {
  if (cores == 0 || busy <= cores) return item_of(slowdown, busy);
  return item_of(slowdown, cores) * busy / cores;
}

void check_slowdown(const std::vector<double>& slowdown) {
  check(!slowdown.empty() && slowdown.front() == 1,
      "plan: a slowdown begins with 1, of a place alone");
  for (std::size_t i = 1; i < slowdown.size(); ++i) {
    check(slowdown[i] >= slowdown[i - 1] && std::isfinite(slowdown[i]),
        "plan: more busy places never make one faster: ", slowdown[i], " after ", slowdown[i - 1]);
  }
}

}  // namespace

double Company::slows_compute(double busy) const { return slowed(compute, busy, cores); }
double Company::slows_memory(double busy) const { return slowed(memory, busy, cores); }

void check_company(const Company& company) {
  check_slowdown(company.compute);
  check_slowdown(company.memory);
  check(company.cores >= 0, "plan: a node has no ", company.cores, " cores");
}

}  // namespace lockstep::plan
