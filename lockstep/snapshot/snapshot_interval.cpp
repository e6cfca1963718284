#include "lockstep/snapshot/snapshot_interval.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_interval(const std::string& text) {
  throw InvalidArgument("snapshot interval: neither steps, epochs nor time above zero: \"" + text +
                        "\"; write 500steps, 2epochs, 600s, 10m, none or never");
}

// Gives the whole number above zero before the unit; nothing if the text does not end in the unit.
std::optional<double> count_of(const std::string& text, std::string_view unit) {
  if (!text.ends_with(unit)) return std::nullopt;
  const std::string_view digits(text.data(), text.size() - unit.size());
  const auto count = parse_number<std::int64_t>(digits);
  constexpr std::int64_t kMost = std::int64_t{1} << 53;  // which a double still counts exactly
  if (!count || *count < 1 || *count > kMost) refuse_interval(text);
  return static_cast<double>(*count);
}

std::string number_text(double number) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, number);
  return error == std::errc() ? std::string(text, end) : std::string();
}

// How many multiples of the count lie below or at the number.
double multiples(std::int64_t number, double count) {
  return std::floor(static_cast<double>(number) / count);
}

}  // namespace

SnapshotInterval parse_snapshot_interval(const std::string& text) {
  if (text == "none") return {SnapshotUnit::kNone, 0};
  if (text == "never") return {SnapshotUnit::kNever, 0};
  if (const auto steps = count_of(text, "steps")) return {SnapshotUnit::kSteps, *steps};
  if (const auto epochs = count_of(text, "epochs")) return {SnapshotUnit::kEpochs, *epochs};
  // A bare number may mean either: it is not guessed.
  if (text.empty() || text.find_first_not_of("0123456789.") == std::string::npos)
    refuse_interval(text);
  try {
    return {SnapshotUnit::kSeconds, parse_duration(text)};
  } catch (const InvalidArgument&) {
    refuse_interval(text);
  }
}

double parse_snapshot_overhead(const std::string& text) {
  const std::string_view digits(text.data(), text.empty() ? 0 : text.size() - 1);
  const auto percent = text.ends_with('%') ? parse_number<double>(digits) : std::nullopt;
  check(percent && *percent > 0 && *percent <= 100,
      "snapshot overhead: not a share of the time above 0 % and at most 100 %: \"", text,
      "\"; write 1% or 0.5%");
  return *percent / 100;
}

std::string snapshot_interval_text(const SnapshotInterval& interval) {
  switch (interval.unit) {
    case SnapshotUnit::kNever:
      return "never";
    case SnapshotUnit::kNone:
      return "none";
    case SnapshotUnit::kSteps:
      return number_text(interval.count) + "steps";
    case SnapshotUnit::kEpochs:
      return number_text(interval.count) + "epochs";
    case SnapshotUnit::kSeconds:
      return number_text(interval.count) + "s";
    case SnapshotUnit::kOverhead:
      break;
  }
  return number_text(interval.count * 100) + "% of the time";
}

double seconds_between_snapshots(double share, const std::optional<SnapshotCost>& cost) {
  if (!cost) return kLeastSnapshotSeconds;
  const double seconds = cost->stall_seconds + cost->background_seconds;
  return std::max(kLeastSnapshotSeconds, seconds / share);
}

bool is_snapshot_due(const SnapshotInterval& interval, const TrainingProgress& last,
    const TrainingProgress& now, const std::optional<SnapshotCost>& cost) {
  switch (interval.unit) {
    case SnapshotUnit::kNever:
    case SnapshotUnit::kNone:
      return false;
    case SnapshotUnit::kSteps:
      return multiples(now.steps, interval.count) > multiples(last.steps, interval.count);
    case SnapshotUnit::kEpochs:
      return multiples(now.epochs, interval.count) > multiples(last.epochs, interval.count);
    case SnapshotUnit::kSeconds:
      return now.seconds - last.seconds >= interval.count;
    case SnapshotUnit::kOverhead:
      break;
  }
  return now.seconds - last.seconds >= seconds_between_snapshots(interval.count, cost);
}

}  // namespace lockstep
