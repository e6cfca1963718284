#include "lockstep/train/options/gradient_settings.h"

#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

std::optional<CommHookKind> kind_named(const std::string& name) {
  for (const auto& entry : names_of(CommHookKind{}))
    if (entry.name == name) return entry.value;
  return std::nullopt;
}

std::int64_t number_of(const std::string& piece, std::int64_t least, const std::string& text) {
  constexpr std::int64_t kMost = 1'000'000'000;
  const auto number = parse_number<std::int64_t>(piece);
  check(number && *number >= least && *number <= kMost, " powersgd:RANK:STEP has whole numbers, ",
      "RANK of at least 1, STEP of at least 0: ", text);
  return *number;
}

}  // namespace

CommHookSettings parse_comm_hook(const std::string& text) {
  const std::vector<std::string> pieces = split(text, ':');
  const auto kind = kind_named(pieces.front());
  const std::size_t most = kind == CommHookKind::kPowerSgd ? 3 : 1;
  const auto names = all_names<CommHookKind>();
  check(kind && pieces.size() <= most, " must be one of ", joined(names), ", powersgd:RANK, ",
      "powersgd:RANK:STEP: ", text, did_you_mean(text, names));
  CommHookSettings settings{.kind = *kind};
  if (pieces.size() > 1) settings.rank = number_of(pieces[1], 1, text);
  if (pieces.size() > 2) settings.start_step = number_of(pieces[2], 0, text);
  return settings;
}

std::string comm_hook_text(const CommHookSettings& settings) {
  const std::string name = name_of(settings.kind);
  if (settings.kind != CommHookKind::kPowerSgd) return name;
  return concat(name, ":", settings.rank, ":", settings.start_step);
}

}  // namespace lockstep
