#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/experiment/sample_process.h"
#include "bench/experiment/study.h"
#include "bench/study/study_options.h"

namespace lockstep::bench {

/// A study that can be run.
struct StudyEntry {
  std::string name;                    ///< as on the command line
  std::string about;                   ///< what it measures, in a line
  std::vector<std::string> data = {};  ///< names of the sets that it can take
  Study (*make)(const StudyOptions& options) = nullptr;
  /// Checks before hours of work that the study's files exist, or makes its data in the bench's
  /// folder; keeps those that exist. nullptr: it needs none.
  void (*prepare)(const StudyOptions& options, const std::filesystem::path& output) = nullptr;
  bool takes_pretrained = false;  ///< weights to begin with, with the whole grid
  bool trains = true;             ///< else it has nothing to do with `lockstep train --device`
  /// Completes the options before the first sample. Only for a study whose grid and data are the
  /// user's, which `all` leaves out; else nullptr.
  void (*explore)(StudyOptions& options, const CellPaths& paths) = nullptr;

  /// Trains the initial weights of the cells and keeps them in the bench's folder, unless they are
  /// there already. nullptr: the cells need none.
  void (*pretrain)(const StudyOptions& options, const CellPaths& paths) = nullptr;

  /// Of one round of the quick grid on two cores, without what work does not change.
  double quick_seconds = 0;
  bool takes_nodes = false;  ///< real hosts for its cells of several nodes

  bool is_of_user() const { return explore != nullptr; }
};

/// Lists the studies in the order in which `bench all` runs them.
const std::vector<StudyEntry>& study_catalogue();

/// Finds a study by its name; nullptr if there is none.
const StudyEntry* find_study(const std::string& name);

/// The file that makes a folder a bench's.
inline constexpr const char* kRequestFile = "bench.json";

/// The request for a bench: with it and samples.jsonl its report can be written again.
struct BenchRequest {
  std::vector<std::string> studies;  ///< by name
  StudyOptions options;

  /// Makes the studies; where several devices are named, one for each of them. A name that this
  /// program does not know is a DataError.
  std::vector<Study> make() const;
};

/// Gives the samples of a quick request so much more work that about six rounds fit into a time.
/// Returns false where the request says itself how much it does.
bool fit_to_budget(BenchRequest& request, double seconds);

/// Does so again with what a first round took, if twice the work or more fits into the time that is
/// left, and some sample can have more; with more work a sample is another one. Returns whether it
/// did.
bool refit_to_budget(BenchRequest& request, double round_seconds, double seconds_left);

/// Writes FOLDER/bench.json, or reads it; nothing where there is none. A file of another form is a
/// DataError.
void write_request(const std::filesystem::path& folder, const BenchRequest& request);
std::optional<BenchRequest> read_request(const std::filesystem::path& folder);

/// Throws InvalidArgument, saying what differs, unless a bench that was asked for so may go on with
/// what `before` began. More rounds are no difference.
void check_continues(const BenchRequest& before, const BenchRequest& now);

}  // namespace lockstep::bench
