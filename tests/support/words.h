#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace lockstep::testing {

using Words = std::vector<std::string>;

/// Returns the words of a line, between its blanks: words("--model toy --lr 0.1").
inline Words words(const std::string& line) {
  std::istringstream text(line);
  Words found;
  for (std::string word; text >> word;) found.push_back(word);
  return found;
}

}  // namespace lockstep::testing
