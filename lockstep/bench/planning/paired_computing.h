#pragma once

#include <vector>

namespace lockstep::bench {

/// Seconds that a batch's forward and backward take on one place, and on each of two at once.
struct PairedComputing {
  double alone = 0;
  double paired = 0;
};

/// The cost of computing beside another place: `slowdown` times the seconds of a place alone, and
/// `fixed` seconds more, whatever the batch.
struct PairedLine {
  double slowdown = 1;
  double fixed = 0;
};

/// Fits the line to what was measured: least squares of the relative errors, so that small batches
/// count as much as large ones. Neither part is ever a gain: if the line says so, the other part
/// explains all. Of batches that do not differ, all is slowdown.
PairedLine paired_line(const std::vector<PairedComputing>& measured);

}  // namespace lockstep::bench
