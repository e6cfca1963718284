#pragma once

#include <vector>

namespace lockstep::bench {

/// Seconds that something was expected to take, alone or as predicted, and those measured.
struct ComparedSeconds {
  double expected = 0;
  double measured = 0;
};

/// A cost beyond what is expected: `slowdown` times those seconds, and `fixed` more, whatever they
/// are.
struct CostLine {
  double slowdown = 1;
  double fixed = 0;
};

/// Fits the line to what was measured: least squares of the relative errors, so that small batches
/// count as much as large ones. Neither part is ever a gain: if the line says so, the other part
/// explains all. Of batches that do not differ, all is slowdown.
CostLine cost_line(const std::vector<ComparedSeconds>& measured);

/// Returns the fixed part where there is no other, by the same least squares: long steps, whose
/// noise exceeds it, count little.
double fixed_cost(const std::vector<ComparedSeconds>& measured);

}  // namespace lockstep::bench
