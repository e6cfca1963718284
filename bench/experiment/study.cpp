#include "bench/experiment/study.h"

#include <algorithm>
#include <set>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

bool is_file_name(const std::string& id) {
  const auto fits = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '.' || letter == '_' || letter == '-';
  };
  constexpr std::size_t kLongest = 200;  // a name of a file may have 255 bytes
  return !id.empty() && id.front() != '.' && id.size() <= kLongest &&
         std::all_of(id.begin(), id.end(), fits);
}

void check_cell(const StudyCell& cell, const std::string& where) {
  check(is_file_name(cell.id), where,
      ": an id must be of up to 200 letters, digits, '.', '_' and '-' and not begin with '.'");
  check(!cell.command.empty() || !cell.not_measurable.empty(), where, ": has no command");
  check(cell.places >= 1, where, ": needs at least 1 place, has ", cell.places);
  check(cell.cores >= 0 && cell.rounds >= 0, where, ": cores and rounds must not be less than 0");
  std::set<std::string> names;
  for (const Setting& setting : cell.settings) {
    check(names.insert(setting.name).second, where, ": has the setting ", setting.name, " twice");
  }
  for (const std::string& variable : cell.environment) {
    const auto equals = variable.find('=');
    const bool is_named = equals != std::string::npos && equals > 0;
    check(is_named, where, ": an environment variable must be NAME=VALUE: ", variable);
  }
}

}  // namespace

void check_study(const Study& study) {
  check(study.rounds >= 1, study.name, ": needs at least 1 round, has ", study.rounds);
  check(study.limit_seconds > 0, study.name, ": a sample needs time: ", study.limit_seconds, " s");
  check(static_cast<bool>(study.values), study.name, ": nothing reads the values of its samples");
  std::set<std::string> ids;
  for (const StudyCell& cell : study.cells) {
    const std::string where = concat(study.name, ": cell '", cell.id, "'");
    check_cell(cell, where);
    check(ids.insert(cell.id).second, where, ": two cells have this id");
  }
}

}  // namespace lockstep::bench
