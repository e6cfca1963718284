#pragma once

#include <string>
#include <vector>

#include "bench/collectives/sweep_line.h"
#include "lockstep/plan/machine.h"
#include "lockstep/record/profile/profile.h"

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

/// Returns the link over which the ranks of a sweep exchanged messages: an all-reduce of n ranks is
/// a ring of 2 (n - 1) messages of a part of the bytes. Measure with one rank a node.
///
/// It takes the sweep's Gloo, or its only backend. Throws DataError that begins with `where`
/// without all-reduces of at least two sizes.
plan::Link link_of_sweep(const std::vector<SweepLine>& lines, const std::string& where);

/// The records of one training with --profile.
struct ProfiledRun {
  double batch = 0;  ///< of a place
  RunProfile profile;
  std::vector<double> step_seconds;  ///< of steps that were not profiled
  double peak_bytes = 0;             ///< of memory, of one process
};

/// Ranks that share the cores of two places.
constexpr int kCrowdedRanks = 4;

/// The trainings that a profile is made of; all but the first list may be empty.
struct ProfiledRuns {
  std::vector<ProfiledRun> alone;    ///< on one place
  std::vector<ProfiledRun> pairs;    ///< by ddp on two, with the same batches on each
  std::vector<ProfiledRun> threads;  ///< by dp on two; the batch is that of each
  std::vector<ProfiledRun> stages;   ///< by mp on two
  std::vector<ProfiledRun> sockets;  ///< by ddp on two through Gloo; the batch is that of each
  std::vector<ProfiledRun> crowds;   ///< by ddp of kCrowdedRanks on two; the batch is that of each
};

/// Facts that the runs themselves do not record.
struct ProfileFacts {
  std::string model, precision, device, source;
  double state_copies = 0;  ///< of the parameters, that the optimizer keeps
  int cores = 0;            ///< of the node, in places
};

/// Makes the profile of a model.
///
/// Note [Profile of runs]
/// The layers were measured alone, which leaves out what they do to each other's caches: they get
/// the times of the steps' own forward and backward, in the shares that they had alone. All times
/// are then scaled to the steps that were not profiled. What two places cost each other is how much
/// longer the phases of ddp take with the same samples on a place; and what the exchange of the
/// gradients takes the rank that waits least for the other. Of the computing, what grows with the
/// batch is the company's, and what every batch has is that gradients are copied into buckets. What
/// `dp` and `mp` take beyond a step that is simulated with all this is the cost of their threads,
/// and of handing over. What Gloo takes beyond shared memory is the time in which sockets keep a
/// core; what ranks that share cores take beyond their turns is the cost of a crowd.
///
/// Throws DataError for runs without a chain of layers, or of different chains.
plan::ModelProfile profile_of_runs(const ProfiledRuns& runs, const ProfileFacts& facts);

}  // namespace lockstep::bench
