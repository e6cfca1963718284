#include "lockstep/cli/flags/choose.h"

#include "lockstep/cli/flags/suggest.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {

void refuse_word(
    const std::string& flag, const std::string& word, const std::vector<std::string>& known) {
  std::string list;
  for (const auto& name : known) list += (list.empty() ? "" : ", ") + name;
  throw InvalidArgument(
      concat("train: ", flag, " must be one of ", list, ": ", word, did_you_mean(word, known)));
}

}  // namespace lockstep::cli
