#include "lockstep/bench/studies/cell_note.h"

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kLongestReason = 40;

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

// A note is one of many columns; the whole reason is for a line of its own.
std::string cut(const std::string& reason) {
  return reason.size() <= kLongestReason ? reason : reason.substr(0, kLongestReason) + "...";
}

}  // namespace

std::string cell_note(const CellResult& result, const std::string& value) {
  std::vector<std::string> parts;
  if (result.oversubscribed) parts.push_back("oversubscribed");
  if (!result.reason.empty()) {
    parts.push_back(cut(result.reason));
    return joined(parts);
  }
  if (result.failures > 0) {
    parts.push_back(concat(
        result.failures, " of ", result.samples.size(), " failed: ", cut(last_failure(result))));
  }
  std::string rounds;
  for (const int round : result.outlier_rounds(value)) {
    rounds += (rounds.empty() ? "" : ", ") + std::to_string(round);
  }
  if (!rounds.empty()) parts.push_back("outlier in round " + rounds);
  return joined(parts);
}

std::vector<std::string> whole_reasons(const std::vector<CellResult>& results) {
  std::vector<std::string> lines;
  for (const CellResult& result : results) {
    const std::string reason = result.reason.empty() ? last_failure(result) : result.reason;
    if (reason.size() > kLongestReason) lines.push_back(result.cell.id + ": " + reason);
  }
  return lines;
}

}  // namespace lockstep::bench
