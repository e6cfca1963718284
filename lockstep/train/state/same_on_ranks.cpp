#include "lockstep/train/state/same_on_ranks.h"

#include <algorithm>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/snapshot/group_values.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostLines = 3;
constexpr std::size_t kMostRanks = 4;

// Neither names nor values hold a zero byte.
std::string text_of(const Configuration& values) {
  std::string text;
  for (const auto& [name, value] : values) text += name + '\0' + value + '\0';
  return text;
}

Configuration values_of(const std::string& text) {
  const std::vector<std::string> pieces = split(text, '\0');
  Configuration values;
  for (std::size_t i = 0; i + 1 < pieces.size(); i += 2)
    values.emplace_back(pieces[i], pieces[i + 1]);
  return values;
}

std::vector<std::string> names_in(const std::vector<Configuration>& ranks) {
  std::vector<std::string> names;
  for (const Configuration& rank : ranks)
    for (const auto& [name, value] : rank)
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

std::string text_of_ranks(const std::vector<std::size_t>& ranks) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostRanks); ++i)
    words.push_back(concat(ranks[i]));
  const std::string more =
      ranks.size() > kMostRanks ? concat(" and ", ranks.size() - kMostRanks, " more") : "";
  return concat(ranks.size() == 1 ? "rank " : "ranks ", joined(words, ", "), more);
}

// Empty if all ranks have the same: `--lr: 0.1 on rank 0, 0.2 on ranks 1, 2`.
std::string difference(const std::string& name, const std::vector<Configuration>& ranks) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> values;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string value = value_in(ranks[rank], name);
    const auto place =
        std::ranges::find(values, value, [](const auto& pair) { return pair.first; });
    if (place == values.end()) {
      values.push_back({value, {rank}});
    } else {
      place->second.push_back(rank);
    }
  }
  if (values.size() == 1) return "";
  std::vector<std::string> parts;
  for (const auto& [value, owners] : values)
    parts.push_back(concat(value, " on ", text_of_ranks(owners)));
  return name + ": " + joined(parts);
}

std::string message_of(const std::string& headline, const std::vector<Configuration>& ranks) {
  std::string text = headline;
  std::vector<std::string> others;
  std::size_t lines = 0;
  for (const std::string& name : names_in(ranks)) {
    const std::string line = difference(name, ranks);
    if (line.empty()) continue;
    if (++lines <= kMostLines) {
      text += "\n  " + line;
    } else {
      others.push_back(name);
    }
  }
  return others.empty() ? text : concat(text, "; these differ, too: ", joined(others));
}

}  // namespace

void check_same_on_ranks(
    const Configuration& own, const std::string& headline, const ProcessGroup& world) {
  if (world.size() == 1) return;
  const std::string text = text_of(own);
  double differs = text == broadcast_text(text, 0, world) ? 0 : 1;
  maximize({&differs}, world);
  if (differs == 0) return;
  std::vector<Configuration> ranks;
  for (const std::string& each : all_texts(text, world)) ranks.push_back(values_of(each));
  throw InvalidArgument(message_of(headline, ranks));
}

void check_same_flags(const TrainOptions& options, const ProcessGroup& world) {
  check_same_on_ranks(shared_configuration(options),
      "train: the ranks were started with different flags; give all of them the same:", world);
}

}  // namespace lockstep
