#include "lockstep/cli/data/data_verbs.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {

DataPlace data_place(
    const std::string& verb, const std::string& set, const std::string& directory) {
  const auto colon = set.find(':');
  if (colon == std::string::npos) return {set, directory};
  check(directory.empty(), "data ", verb, ": the folder is given twice: ", set, " ", directory);
  check(colon + 1 < set.size(), "data ", verb, ": there is no folder after the colon: ", set);
  return {set.substr(0, colon), set.substr(colon + 1)};
}

}  // namespace lockstep::cli
