#include "lockstep/cluster/surroundings.h"

#include <fstream>
#include <iterator>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::cluster {
namespace {

std::optional<std::string> text_of_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

std::optional<std::string> Surroundings::text(const std::string& name) const {
  const auto found = variables.find(name);
  if (found == variables.end()) return std::nullopt;
  check(!found->second.empty(), "environment: ", name,
      " is set, but empty; give it a value, or unset it");
  return found->second;
}

std::optional<int> Surroundings::count(const std::string& name, int least) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto number = parse_number<int>(*value);
  check(number && *number >= least && *number <= kMostRanks, "environment: ", name,
      " must be a whole number from ", least, " to ", kMostRanks, ": ", printable(*value));
  return number;
}

Surroundings surroundings_of_this_process() {
  Surroundings here{.variables = {}, .process = ::getpid(), .read_file = text_of_file};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos)
      here.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return here;
}

}  // namespace lockstep::cluster
