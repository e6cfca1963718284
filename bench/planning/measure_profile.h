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
  int steps_a_line = 10;  ///< that are timed together; as many as fill half a second, once known
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

/// Returns how far measuring is after so many seconds, of which each training takes about as many
/// as those that are done: `1 of 10`, `3 of 10; about 3:20 left`.
std::string count_text(std::size_t done, std::size_t all, double seconds);

/// Trains them in a folder, `paths.bench`, and makes the profile; the facts are completed by what
/// is measured. A batch other than the first that one place cannot train, such as a single sample
/// before a batch norm, is left out, as are stages of a net that has none; `say` hears why. Throws
/// InvalidArgument with what any other training said that failed.
plan::ModelProfile measure_profile(const MeasureRequest& request, const ProfileFacts& facts,
    const CellPaths& paths, const std::function<void(const std::string&)>& say);

/// Returns the flags with which `lockstep train` trains in this way on one node, with a batch of
/// so many samples on all replicas together. Stages are cut by time.
Words train_flags_of(const plan::Way& way, double batch);

}  // namespace lockstep::bench
