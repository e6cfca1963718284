#include "lockstep/launch/stream_mask.h"

#include <algorithm>
#include <regex>
#include <sstream>

#include "lockstep/core/error.h"

namespace lockstep::launch {

StreamMask StreamMask::parse(const std::string& flag, const std::string& text) {
  static const std::regex kForAll("[0-3]");
  static const std::regex kForRanks("([0-9]{1,6}:[0-3],)*[0-9]{1,6}:[0-3]");
  StreamMask mask;
  if (std::regex_match(text, kForAll)) {
    mask.all_ = text[0] - '0';
    return mask;
  }
  check(
      std::regex_match(text, kForRanks), flag,
      ": must be 0 (none), 1 (output), 2 (errors) or 3 (both), or RANK:MASK,RANK:MASK: ", text);
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const auto colon = entry.find(':');
    mask.ranks_[std::stoi(entry.substr(0, colon))] = entry[colon + 1] - '0';
  }
  return mask;
}

bool StreamMask::has(int local_rank, Stream stream) const {
  const auto rank = ranks_.find(local_rank);
  const int mask = rank == ranks_.end() ? all_ : rank->second;
  return (mask & static_cast<int>(stream)) != 0;
}

bool StreamMask::empty() const {
  const auto none = [](const auto& rank) { return rank.second == 0; };
  return all_ == 0 && std::all_of(ranks_.begin(), ranks_.end(), none);
}

}  // namespace lockstep::launch
