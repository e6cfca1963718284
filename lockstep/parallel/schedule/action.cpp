#include "lockstep/parallel/schedule/action.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr std::array<std::pair<std::string_view, ActionKind>, 8> kTexts{{
    {"F", ActionKind::kForward},
    {"B", ActionKind::kBackward},
    {"I", ActionKind::kBackwardInput},
    {"W", ActionKind::kBackwardWeight},
    {"SEND_F", ActionKind::kSendForward},
    {"RECV_F", ActionKind::kReceiveForward},
    {"SEND_B", ActionKind::kSendBackward},
    {"RECV_B", ActionKind::kReceiveBackward},
}};

std::string_view text_of(ActionKind kind) {
  return std::find_if(kTexts.begin(), kTexts.end(), [&](const auto& entry) {
    return entry.second == kind;
  })->first;
}

std::optional<ActionKind> kind_of(std::string_view text) {
  const auto* const found = std::find_if(
      kTexts.begin(), kTexts.end(), [&](const auto& entry) { return entry.first == text; });
  if (found == kTexts.end()) return std::nullopt;
  return found->second;
}

}  // namespace

bool is_compute(ActionKind kind) { return kind <= ActionKind::kBackwardWeight; }

std::string to_string(const Action& action) {
  return concat(action.stage, text_of(action.kind), action.micro_batch);
}

Action parse_action(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t kind_at = std::min(text.find_first_not_of(kDigits), text.size());
  const std::size_t kind_end = text.find_last_not_of(kDigits) + 1;  // npos + 1 is 0
  const std::size_t kind_size = kind_end > kind_at ? kind_end - kind_at : 0;
  const auto stage = parse_number<int>(text.substr(0, kind_at));
  const auto kind = kind_of(text.substr(kind_at, kind_size));
  const auto micro_batch = parse_number<int>(text.substr(kind_at + kind_size));
  check(stage && kind && micro_batch, "parse_action: not an action: '", text,
      "'; write stage, kind (F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B) and micro-batch, as 1F0");
  return {*stage, *kind, *micro_batch};
}

}  // namespace lockstep
