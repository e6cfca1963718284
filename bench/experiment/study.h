#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/experiment/cell.h"
#include "bench/experiment/sample.h"

namespace lockstep::bench {

struct CellResult;

namespace page {
struct Section;
}

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

  /// Makes tables, figures and a conclusion of samples. Include page/section.h to call or set it.
  std::function<page::Section(const Study&, std::span<const Sample>)> report;
};

/// Throws InvalidArgument that names the study and the cell where something cannot be: no or equal
/// ids, an id that is not a file's name, a name of a setting twice, no command, rounds or places
/// less than 1, a variable without `=`, no `values`.
void check_study(const Study& study);

}  // namespace lockstep::bench
