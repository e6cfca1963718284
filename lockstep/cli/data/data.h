#pragma once

#include <filesystem>
#include <ostream>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/data/check/check_set.h"

namespace lockstep::cli {

/// A set and the folder where it lies.
struct DataPlace {
  std::string name;
  std::filesystem::path directory;
};

/// Takes `NAME DIR` and `NAME:DIR`, as `lockstep train --data` has it; without a folder there is
/// none. A folder that is empty or given twice is an InvalidArgument.
inline DataPlace data_place(
    const std::string& verb, const std::string& set, const std::string& directory) {
  const auto colon = set.find(':');
  if (colon == std::string::npos) return {set, directory};
  check(directory.empty(), "data ", verb, ": the folder is given twice: ", set, " ", directory);
  check(colon + 1 < set.size(), "data ", verb, ": there is no folder after the colon: ", set);
  return {set.substr(0, colon), set.substr(colon + 1)};
}

/// Prints what a check found, for people.
void print_report(std::ostream& out, const data::SetReport& report);

}  // namespace lockstep::cli
