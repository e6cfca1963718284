#include "lockstep/core/suggest.h"

#include <algorithm>

namespace lockstep {
namespace {

std::string with_dashes(std::string word) {
  std::replace(word.begin(), word.end(), '_', '-');
  return word;
}

bool begins(const std::string& word, const std::string& known) {
  constexpr std::size_t kTelling = 5;
  return word.size() >= kTelling && known.compare(0, word.size(), word) == 0;
}

}  // namespace

std::size_t edit_distance(const std::string& from, const std::string& to) {
  // Three rows of the usual table: a swap of neighbours looks two rows back.
  std::vector<std::size_t> before(to.size() + 1), above(to.size() + 1), row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string asked = with_dashes(word);
  const std::string* best = nullptr;
  std::size_t least = asked.size() / 3 + 1;
  for (const std::string& name : known) {
    const std::size_t distance = begins(asked, name) ? 1 : edit_distance(asked, name);
    if (distance >= least) continue;
    least = distance;
    best = &name;
  }
  if (best == nullptr) return "";
  return "; did you mean " + *best + "?";
}

}  // namespace lockstep
