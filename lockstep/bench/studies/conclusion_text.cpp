#include "lockstep/bench/studies/conclusion_text.h"

#include "lockstep/core/error.h"

namespace lockstep::bench {

std::string in_one(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) {
    if (!sentence.empty()) text += concat(text.empty() ? "" : " ", sentence);
  }
  return text;
}

std::vector<std::string> said(std::vector<std::string> sentences) {
  std::erase(sentences, "");
  return sentences;
}

std::string about_missing(std::ptrdiff_t missing, std::size_t all) {
  if (missing == 0) return "";
  return concat(missing, " of ", all, " cells have no number: the tables say why.");
}

std::string about_oversubscribed(const std::string& what) {
  return concat(
      what,
      " are more than there are cores: such cells are marked oversubscribed, are no fair test and "
      "no part of this.");
}

}  // namespace lockstep::bench
