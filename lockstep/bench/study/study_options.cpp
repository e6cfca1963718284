#include "lockstep/bench/study/study_options.h"

#include <algorithm>

namespace lockstep::bench {

std::string data_name(const std::string& data) { return data.substr(0, data.find(':')); }

std::string StudyOptions::data_of(
    const std::vector<std::string>& names, const std::string& otherwise) const {
  const auto found = std::find_if(data.begin(), data.end(), [&](const std::string& each) {
    return std::find(names.begin(), names.end(), data_name(each)) != names.end();
  });
  return found == data.end() ? otherwise : *found;
}

}  // namespace lockstep::bench
