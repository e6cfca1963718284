#include "lockstep/cli/train/auto_parallel.h"

#include <algorithm>
#include <optional>

#include "lockstep/cli/sibling_program.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

// Where `--parallel auto` or `--parallel=auto` begins, and how many words it has.
struct Found {
  std::ptrdiff_t at;
  std::ptrdiff_t words;
};

std::optional<Found> find_auto(const Words& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--parallel=auto") return Found{static_cast<std::ptrdiff_t>(i), 1};
    if (arguments[i] == "--parallel" && i + 1 < arguments.size() && arguments[i + 1] == "auto")
      return Found{static_cast<std::ptrdiff_t>(i), 2};
  }
  return std::nullopt;
}

std::string output_of(const Words& arguments) {
  std::string output;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--output=")) output = arguments[i].substr(9);
    if (arguments[i] == "--output" && i + 1 < arguments.size()) output = arguments[i + 1];
  }
  return output;
}

}  // namespace

Words resolve_auto_parallel(const Words& arguments) {
  const auto found = find_auto(arguments);
  if (!found) return arguments;
  check(!environment("RANK"),
      "train: --parallel auto chooses how many ranks to start, and these are started already: "
      "leave out the launcher, or name the way");
  Words rest = arguments;
  rest.erase(rest.begin() + found->at, rest.begin() + found->at + found->words);
  const auto asks_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (std::any_of(rest.begin(), rest.end(), asks_help)) return rest;
  const std::string output = output_of(rest);
  if (!output.empty() && holds_run(output)) return rest;
  Words plan{"plan", "--train", "--"};
  plan.insert(plan.end(), rest.begin(), rest.end());
  become("train", sibling_program("train", "lockstep-bench"), plan);
}

}  // namespace lockstep::cli
