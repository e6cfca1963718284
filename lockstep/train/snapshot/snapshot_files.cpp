#include "lockstep/train/snapshot/snapshot_files.h"

#include <charconv>
#include <cstdio>
#include <string_view>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kEnding = ".safetensors";
constexpr std::size_t kDigits = 5;
constexpr std::string_view kNumbers = "-00001-of-00002";

std::string five_digits(int number) {
  char text[16];
  std::snprintf(text, sizeof text, "%05d", number);
  return text;
}

std::optional<int> number_of(std::string_view digits) {
  int number = 0;
  const char* const end = digits.data() + digits.size();
  if (digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

}  // namespace

std::string snapshot_file_name(const std::string& group, int part, int parts) {
  check(
      part >= 0 && part < parts, "snapshot_file_name: there is no part ", part, " of ", parts,
      " of ", group);
  if (parts == 1) return concat(group, kEnding);
  return concat(group, '-', five_digits(part + 1), "-of-", five_digits(parts), kEnding);
}

std::string snapshot_rank_file_name(int rank) {
  return concat("rank-", five_digits(rank), kEnding);
}

std::optional<SnapshotPartName> parse_snapshot_file_name(const std::string& name) {
  if (!name.ends_with(kEnding) || name.size() == kEnding.size()) return std::nullopt;
  const std::string_view stem(name.data(), name.size() - kEnding.size());
  if (stem.size() <= kNumbers.size()) return SnapshotPartName{std::string(stem), 0, 1};
  const std::string_view numbers = stem.substr(stem.size() - kNumbers.size());
  const auto part = number_of(numbers.substr(1, kDigits));
  const auto parts = number_of(numbers.substr(kNumbers.size() - kDigits));
  const bool is_part = numbers.front() == '-' && numbers.substr(1 + kDigits, 4) == "-of-" && part &&
                       parts && *part >= 1 && *part <= *parts && *parts > 1;
  if (!is_part) return SnapshotPartName{std::string(stem), 0, 1};
  return SnapshotPartName{
      std::string(stem.substr(0, stem.size() - kNumbers.size())), *part - 1, *parts};
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
