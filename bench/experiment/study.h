#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/experiment/sample.h"
#include "bench/statistics/median.h"

namespace lockstep::page {
struct Section;
}

namespace lockstep::bench {

/// Placeholder in a cell's command for the folder of the bench, which may be moved.
inline constexpr const char* kBenchFolder = "{bench}";

/// Placeholder in a cell's command for the path of `lockstep`, where another launcher starts it.
inline constexpr const char* kThisProgram = "{lockstep}";

/// One coordinate of a cell in its study's grid, as `{"batch_size", "128"}`.
struct Setting {
  std::string name;
  std::string value;

  bool operator==(const Setting&) const = default;
};

/// One way of doing the work: a point of a study's grid.
struct StudyCell {
  std::string id;  ///< unique in its study; letters, digits, `.`, `_`, `-`: files are named by it
  std::vector<Setting> settings = {};  ///< in the order in which tables show them; names are unique
  /// What follows the program's name, as {"train", "--model", "toy"}. The runner adds `--output
  /// FOLDER`, and puts the bench's own folder for kBenchFolder; what the run is to leave there is
  /// what the study's `values` reads.
  std::vector<std::string> command = {};
  std::string program = {};                   ///< that starts it, from PATH; empty: `lockstep`
  int places = 1;                             ///< how many compute at a time
  bool on_cores = true;                       ///< else places are devices, and cores only feed them
  int cores = 0;                              ///< it may use the first ones of ours; 0: all
  std::vector<std::string> environment = {};  ///< NAME=VALUE, for what we inherited of that name
  int rounds = 0;                             ///< at most as many of the study's; 0: all
  std::string not_measurable = {};            ///< why this cannot be measured here; empty: it can
};

struct CellResult;

/// One experiment: a question, the cells that answer it, and how it is reported.
struct Study {
  std::string name;      ///< as on the command line: `data-parallel`
  std::string title;     ///< of its section
  std::string question;  ///< that it answers
  std::vector<StudyCell> cells;
  int rounds = 3;               ///< samples of each cell
  double limit_seconds = 1800;  ///< a sample that takes longer is ended, and has failed

  /// Reads the values of a sample, by name, from the folder that its run left. It is called when
  /// the run has ended with code 0; what it throws is the sample's failure.
  std::function<std::map<std::string, double>(const StudyCell&, const std::filesystem::path& run)>
      values;

  /// Says of each cell whether another round of it is worth its time, asked before each round;
  /// empty: each is, in all rounds.
  std::function<std::vector<bool>(std::span<const CellResult>)> worth = {};
  bool begins_in_order = false;  ///< the first round has the cells' own order

  /// Makes tables, figures and a conclusion of samples. Include report/page/page.h to call or set
  /// it.
  std::function<page::Section(const Study&, std::span<const Sample>)> report;
};

/// Throws InvalidArgument that names the study and the cell where something cannot be: no or equal
/// ids, an id that is not a file's name, a name of a setting twice, no command, rounds or places
/// less than 1, a variable without `=`, no `values`.
void check_study(const Study& study);

/// The samples of a cell and the estimates from them.
struct CellResult {
  StudyCell cell;
  std::vector<Sample> samples;                ///< one a round, failed ones too, by round
  std::map<std::string, Estimate> estimates;  ///< by value's name; none for one ever not finite
  bool oversubscribed = false;
  /// Why it has no number: not measurable, or all failed (the last failure), or not run yet. Empty
  /// if a sample worked.
  std::string reason;
  int failures = 0;  ///< samples that failed

  /// Returns an estimate; nothing when there is none.
  std::optional<Estimate> estimate(const std::string& value) const;

  /// Returns a value of each sample that worked and has it finite, by round.
  std::map<int, double> by_round(const std::string& value) const;

  /// Returns the rounds whose value is an outlier among the cell's.
  std::vector<int> outlier_rounds(const std::string& value) const;

  /// Returns a setting of the cell; "" when it has none of that name.
  std::string setting(const std::string& name) const;
};

/// Sorts samples into the study's cells, in their order. Samples of other studies and cells are
/// left out; of several of one round the last counts.
std::vector<CellResult> cell_results(const Study& study, std::span<const Sample> samples);

/// Estimates how much larger a value is in one cell than in another, from the rounds that both
/// have; nothing when there is none, or a denominator is 0.
std::optional<Estimate> ratio_of(
    const CellResult& numerator, const CellResult& denominator, const std::string& value);

}  // namespace lockstep::bench
