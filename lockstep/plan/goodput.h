#pragma once

namespace lockstep::plan {

/// The failures of nodes, and what a training does against them. All in seconds.
struct Failures {
  double between = 0;   ///< failures of one node, on average; 0: there are none
  double snapshot = 0;  ///< during which a snapshot stops the training
  double interval = 0;  ///< of training between snapshots; 0: the best one is taken
  double recovery = 0;  ///< from a failure to the first step after it
};

/// The part of its time that a training keeps.
struct Goodput {
  double share = 1;     ///< of the time; the rest is lost to snapshots, failures and lost steps
  double interval = 0;  ///< between snapshots; 0: no snapshot is needed
};

/// Returns the goodput of N nodes, any of which ends the training when it fails.
///
/// Failures come at random with a constant rate (a Poisson process), also during a snapshot and a
/// recovery; each throws the training back to its last snapshot. The expected time of an interval
/// T with a snapshot of s seconds is M e^(R/M) (e^((T+s)/M) - 1), M being the mean time between
/// failures of any node and R the recovery (J. T. Daly, "A higher order estimate of the optimum
/// checkpoint interval for restart dumps", 2006). Throws InvalidArgument for negative seconds.
Goodput goodput_of(const Failures& failures, int nodes);

}  // namespace lockstep::plan
