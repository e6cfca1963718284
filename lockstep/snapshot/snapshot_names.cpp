#include "lockstep/snapshot/snapshot_names.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <regex>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kFront = "step-";
constexpr std::size_t kDigits = 8;
constexpr std::size_t kLetters = 6;
constexpr std::size_t kLongestName = 200;
constexpr std::string_view kAlphabet =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

bool consists_of(std::string_view text, std::string_view letters) {
  return text.find_first_not_of(letters) == std::string_view::npos;
}

/// Takes a part off the front, if it is there.
bool take(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

/// Knows the names of an AtomicFile on its way to `name`: `.LATEST.123.part`.
bool is_part_of(std::string_view text, std::string_view name) {
  constexpr std::string_view kEnd = ".part";
  if (!take(text, ".") || !take(text, name) || !take(text, ".") || !text.ends_with(kEnd)) {
    return false;
  }
  text.remove_suffix(kEnd.size());
  return !text.empty() && consists_of(text, "0123456789");
}

}  // namespace

std::string snapshot_name(std::int64_t step) {
  check(step >= 0, "a snapshot's step cannot be negative: ", step);
  std::string digits = std::to_string(step);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return std::string(kFront) + digits;
}

std::optional<std::int64_t> step_of(std::string_view name) {
  std::string_view digits = name;
  if (!take(digits, kFront)) return std::nullopt;
  const auto step = parse_number<std::int64_t>(digits);
  return step && *step >= 0 && snapshot_name(*step) == name ? step : std::nullopt;
}

std::vector<std::filesystem::path> snapshots_newest_first(const std::filesystem::path& run) {
  std::vector<std::filesystem::path> snapshots;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(run / kSnapshots, none))
    if (step_of(entry.path().filename().string())) snapshots.push_back(entry.path());
  std::sort(snapshots.begin(), snapshots.end(), std::greater<>());
  return snapshots;
}

std::string aside_name(std::int64_t step) {
  std::random_device random;
  std::string name = concat('.', snapshot_name(step), '.');
  for (std::size_t i = 0; i < kLetters; ++i) name += kAlphabet[random() % kAlphabet.size()];
  return name;
}

std::string rescue_name(std::int64_t step) { return concat('.', snapshot_name(step), ".rescue"); }

std::optional<std::int64_t> step_of_aside(std::string_view name) {
  if (!take(name, ".") || name.size() <= kLetters + 1) return std::nullopt;
  const std::string_view letters = name.substr(name.size() - kLetters);
  name.remove_suffix(kLetters);
  if (!name.ends_with('.') || !consists_of(letters, kAlphabet)) return std::nullopt;
  name.remove_suffix(1);
  return step_of(name);
}

bool is_leftover(std::string_view name) {
  return step_of_aside(name).has_value() || is_part_of(name, kLatest) || is_part_of(name, kBest);
}

bool is_file_name(std::string_view name) {
  const bool is_short = !name.empty() && name.size() <= kLongestName;
  return is_short && name[0] != '.' && name != kManifest &&
         std::all_of(name.begin(), name.end(), [](char letter) {
           return kAlphabet.find(letter) != std::string_view::npos || letter == '.' ||
                  letter == '_' || letter == '-';
         });
}

namespace {

constexpr std::string_view kEnding = ".safetensors";
std::string five_digits(int number) {
  char text[16];
  std::snprintf(text, sizeof text, "%05d", number);
  return text;
}

}  // namespace

std::string snapshot_file_name(const std::string& group, int part, int parts) {
  check(part >= 0 && part < parts, "snapshot_file_name: there is no part ", part, " of ", parts,
      " of ", group);
  if (parts == 1) return concat(group, kEnding);
  return concat(group, '-', five_digits(part + 1), "-of-", five_digits(parts), kEnding);
}

std::string snapshot_rank_file_name(int rank) {
  return concat("rank-", five_digits(rank), kEnding);
}

std::optional<SnapshotPartName> parse_snapshot_file_name(const std::string& name) {
  static const std::regex kForm(R"((.+)-(\d{5})-of-(\d{5}))");
  if (!name.ends_with(kEnding) || name.size() == kEnding.size()) return std::nullopt;
  const std::string stem = name.substr(0, name.size() - kEnding.size());
  if (std::smatch match; std::regex_match(stem, match, kForm)) {
    const int part = std::stoi(match[2]), parts = std::stoi(match[3]);
    if (1 <= part && part <= parts && parts > 1) return SnapshotPartName{match[1], part - 1, parts};
  }
  return SnapshotPartName{stem, 0, 1};
}

SnapshotFileNames snapshot_file_names(const SnapshotRole& role) {
  SnapshotFileNames names{.model = {}, .model_ema = {}, .optimizer = {}, .rank = {}};
  names.rank = snapshot_rank_file_name(role.rank);
  if (role.replica == 0) {
    names.model = snapshot_file_name("model", role.stage, role.stages);
    names.model_ema = snapshot_file_name("model-ema", role.stage, role.stages);
    names.optimizer = snapshot_file_name("optimizer", role.stage, role.stages);
  }
  if (role.sharded_optimizer) {
    names.optimizer = snapshot_file_name("optimizer", role.rank, role.ranks);
  }
  return names;
}

}  // namespace lockstep
