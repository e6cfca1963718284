#pragma once

#include <string>
#include <vector>

namespace lockstep::bench {

/// Stands in a cell's command for the folder of the bench, which may be moved.
inline constexpr const char* kBenchFolder = "{bench}";

/// Stands in a cell's command for the path of `lockstep`, where another launcher is to start it.
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

}  // namespace lockstep::bench
