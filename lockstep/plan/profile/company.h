#pragma once

#include <vector>

namespace lockstep::plan {

/// The slowing of busy places of one node by each other: they share caches, memory and the clock,
/// and cores where there are more places than these.
struct Company {
  /// Item k - 1: how many times as long k places take that compute at once, and k that step their
  /// optimizers, which memory limits. More places than items take as long as the last.
  std::vector<double> compute = {1};
  std::vector<double> memory = {1};
  int cores = 0;  ///< of a node, in places: more than these take turns; 0: each place has its own
  double crowded = 1;  ///< how many times as long places that take turns need, beyond their turns

  double slows_compute(double busy) const;
  double slows_memory(double busy) const;

  /// Returns how many times as long a busy place takes because others use its core.
  double slows_by_turns(double busy) const;
};

/// Throws InvalidArgument unless each list begins with 1 and never falls, and taking turns costs no
/// less than nothing.
void check_company(const Company& company);

}  // namespace lockstep::plan
