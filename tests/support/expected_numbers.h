#pragma once

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::testing {

/// Returns the numbers behind a name in tests/conformance/numbers/FILE, as Python wrote them.
inline std::vector<double> expected_numbers(const std::string& file, const std::string& name) {
  std::ifstream lines(LOCKSTEP_CONFORMANCE_DIR "/numbers/" + file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first != name) continue;
    std::vector<double> numbers;
    for (double number = 0; words >> number;) numbers.push_back(number);
    return numbers;
  }
  ADD_FAILURE() << file << " has no numbers called " << name;
  return {};
}

}  // namespace lockstep::testing
