#include "lockstep/cli/data/data_verbs.h"
#include "lockstep/cli/data/show_flags.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/train/show_data.h"

namespace lockstep::cli {

int data_show(const std::vector<std::string>& arguments) {
  if (!show_request(arguments)) return 0;
  std::vector<std::string> words{kShowData};
  words.insert(words.end(), arguments.begin(), arguments.end());
  become("data show", sibling_program("data show", "lockstep-train"), words);
}

}  // namespace lockstep::cli
