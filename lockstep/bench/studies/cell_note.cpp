#include "lockstep/bench/studies/cell_note.h"

#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text.empty() ? "-" : text;
}

std::string last_failure(const CellResult& result) {
  std::string reason;
  for (const Sample& sample : result.samples) {
    if (!sample.failure.empty()) reason = sample.failure;
  }
  return reason;
}

}  // namespace

std::string cell_note(const CellResult& result, const std::string& value) {
  std::vector<std::string> parts;
  if (result.oversubscribed) parts.push_back("oversubscribed");
  if (!result.reason.empty()) {
    parts.push_back(result.reason);
    return joined(parts);
  }
  if (result.failures > 0) {
    parts.push_back(
        concat(result.failures, " of ", result.samples.size(), " failed: ", last_failure(result)));
  }
  std::string rounds;
  for (const int round : result.outlier_rounds(value)) {
    rounds += (rounds.empty() ? "" : ", ") + std::to_string(round);
  }
  if (!rounds.empty()) parts.push_back("outlier in round " + rounds);
  return joined(parts);
}

}  // namespace lockstep::bench
