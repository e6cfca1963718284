#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bench/experiment/sample_process.h"
#include "bench/planning/profile_of_runs.h"
#include "bench/study/training_run.h"
#include "lockstep/core/enum_names.h"
#include "lockstep/plan/answer.h"
#include "lockstep/plan/way.h"

namespace lockstep::bench {

/// The ways of spreading that a profile is made of.
enum class MeasuredAs { kAlone, kPair, kThreads, kStages, kSockets, kCrowd };
constexpr auto names_of(MeasuredAs) {
  using M = MeasuredAs;
  return std::array{EnumName{M::kAlone, "serial"}, EnumName{M::kPair, "ddp"},
      EnumName{M::kThreads, "dp"}, EnumName{M::kStages, "mp"}, EnumName{M::kSockets, "gloo"},
      EnumName{M::kCrowd, "crowd"}};
}

/// The training whose profile is measured.
struct MeasureRequest {
  std::string model;
  std::string plugin = {};
  std::string data = "mock:constant";
  std::string precision = "32";
  std::vector<int> batches;  ///< of a place
  int cores = 1;             ///< that may be used
  int cores_a_place = 1;
  int rounds = 1;  ///< of all trainings: those after the first are plain, and only count as steps
  std::vector<MeasuredAs> left_out = {};      ///< not asked about
  std::vector<int> refused = {};              ///< of the batches, those that cannot be trained
  std::vector<std::string> train_flags = {};  ///< more words for each `lockstep train`
  double seconds = 0;    ///< about which measuring may take; 0: no limit, and all batches are taken
  int steps_a_line = 1;  ///< that are timed together; as many as fill half a second, once known
  bool has_accelerator = true;  ///< whose profiles take more steps; false once that is known
};

/// Returns what no question is about, which then needs no training: threads and stages without a
/// way that has them, sockets on one node, and a crowd where there are `places` enough here. All
/// have the ways of the first.
std::vector<MeasuredAs> not_asked_about(const std::vector<plan::Question>& questions, int places);

struct MeasuredCell {
  MeasuredAs as = MeasuredAs::kAlone;
  int batch = 0;  ///< of a place; of all for stages
  bool has_profile = false;
  StudyCell cell;
};

/// Returns the trainings that are measured: on one place with each batch, and, where there are
/// cores for two places, by ddp with each batch, by dp and mp with some of them, by ddp through
/// Gloo, and by ddp of four ranks that share two places' cores, but for what is left out. What is
/// compared with each other is measured one after the other, since machines drift. `is_again`:
/// without profiles.
std::vector<MeasuredCell> profile_cells(const MeasureRequest& request, bool is_again = false);

/// A training for the time of its steps alone.
struct PlainTraining {
  std::string name;
  std::vector<std::string> spreading;  ///< flags, the batch among them
  int places = 1;
};

/// Trains for some steps and returns what those after the first took. Throws InvalidArgument with
/// what a training said that failed.
std::vector<double> plain_steps(
    const MeasureRequest& request, const PlainTraining& training, const CellPaths& paths);

/// The times of trainings, as far as those that were made tell.
struct Pace {
  plan::CostCurve step;  ///< seconds of one place's step by its batch
  double start = 0;      ///< seconds in which a training starts and ends
};

/// Returns the request as its next training is made: as many steps are timed together as fill half
/// a second.
MeasureRequest paced(MeasureRequest request, const Pace& pace, int batch);

/// Returns about how long such a training takes, in seconds.
double seconds_of(const MeasuredCell& cell, const MeasureRequest& request, const Pace& pace);

/// Returns the batches, the least first, halved until a round of trainings takes no longer than the
/// request allows: from small batches larger ones can be told, from none nothing.
std::vector<int> affordable(const MeasureRequest& request, const Pace& pace);

/// Returns how far measuring is: `3 of 10; about 3:20 left`.
std::string count_text(std::size_t done, std::size_t all, double seconds_left);

/// The listeners to a measurement.
struct MeasureNews {
  std::function<void(const std::string&)> say;
  /// Gets the profile after each training, made of what was measured so far.
  std::function<void(const plan::ModelProfile&)> keep;
};

/// Trains in a folder, `paths.bench`, and makes the profile; the facts are completed by what is
/// measured. Small batches come first, and what the request has no time for is left out. A batch
/// that one place cannot train, such as a single sample before a batch norm, is left out, too, as
/// are stages of a net that has none. Throws InvalidArgument with what any other training said that
/// failed.
plan::ModelProfile measure_profile(const MeasureRequest& request, const ProfileFacts& facts,
    const CellPaths& paths, const MeasureNews& news);

/// Returns the flags with which `lockstep train` trains in this way on one node, with a batch of
/// so many samples on all replicas together. Stages are cut by time.
Words train_flags_of(const plan::Way& way, double batch);

}  // namespace lockstep::bench
