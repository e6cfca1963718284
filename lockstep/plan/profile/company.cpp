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

double slowed(const std::vector<double>& slowdown, double busy, const Company& company) {
  const double at_once = company.cores == 0 ? busy : std::min<double>(busy, company.cores);
  return item_of(slowdown, at_once) * company.slows_by_turns(busy);
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

double Company::slows_compute(double busy) const { return slowed(compute, busy, *this); }
double Company::slows_memory(double busy) const { return slowed(memory, busy, *this); }

double Company::slows_by_turns(double busy) const {
  return cores == 0 || busy <= cores ? 1 : crowded * busy / cores;
}

void check_company(const Company& company) {
  check_slowdown(company.compute);
  check_slowdown(company.memory);
  check(company.cores >= 0, "plan: a node has no ", company.cores, " cores");
  check(company.crowded >= 1 && std::isfinite(company.crowded),
      "plan: places that take turns are never faster for it: ", company.crowded);
}

}  // namespace lockstep::plan
