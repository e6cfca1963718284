#include "bench/study/report_of.h"

#include <cmath>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kLongestReason = 40;

// A note is one of many columns; the whole reason is for a line of its own.
std::string cut(const std::string& reason) {
  return reason.size() <= kLongestReason ? reason : reason.substr(0, kLongestReason) + "...";
}

std::string last_failure(const CellResult& result) {
  std::string reason;
  for (const Sample& sample : result.samples) {
    if (!sample.failure.empty()) reason = sample.failure;
  }
  return reason;
}

std::string outlier_note(const CellResult& result, const std::string& value) {
  std::vector<std::string> rounds;
  for (const int round : result.outlier_rounds(value)) rounds.push_back(std::to_string(round));
  return rounds.empty() ? "" : "outlier in round " + joined(rounds);
}

/// A row of the table of samples.
struct SampleRow {
  const CellResult* result;
  const Sample* sample;

  bool was_tried() const { return sample->not_measurable.empty(); }
};

std::string value_text(const Sample& sample, const std::string& name) {
  const auto found = sample.values.find(name);
  if (found == sample.values.end()) return kNone;
  return std::isfinite(found->second) ? seconds_text(found->second) : "nan";
}

std::string note_of_sample(const SampleRow& row, const std::vector<SampleColumn>& values) {
  const Sample& sample = *row.sample;
  std::vector<std::string> parts{sample.oversubscribed ? "oversubscribed" : "",
      sample.not_measurable, sample.failure.empty() ? "" : "failed: " + sample.failure};
  for (const auto& [name, head] : values) {
    const auto rounds = row.result->outlier_rounds(name);
    const bool is_outlier = std::ranges::find(rounds, sample.round) != rounds.end();
    if (is_outlier) parts.push_back("outlier: " + head);
  }
  return noted(parts);
}

std::optional<double> others_of(const SampleRow& row) {
  const bool known = row.was_tried() && std::isfinite(row.sample->other_share);
  return known ? std::optional(row.sample->other_share) : std::nullopt;
}

TableOf<SampleRow> sample_columns(
    const std::string& study, const std::vector<SampleColumn>& values) {
  TableOf<SampleRow> table(sample_table_id(study), "Every sample");
  table.name("cell", [](const SampleRow& row) { return row.result->cell.id; })
      .number("round", [](const SampleRow& row) { return row.sample->round; });
  for (const auto& [name, head] : values) {
    table.number(
        head, [name = name](const SampleRow& row) { return value_text(*row.sample, name); });
  }
  const auto if_tried = [](double Sample::*seconds) {
    return [seconds](const SampleRow& row) {
      return row.was_tried() ? std::optional(row.sample->*seconds) : std::nullopt;
    };
  };
  return table.number("whole run [s]", if_tried(&Sample::seconds))
      .number("calibration [ms]", if_tried(&Sample::calibration_seconds), milliseconds_text)
      .number("others", others_of, percent_text)
      .name("note", [values](const SampleRow& row) { return note_of_sample(row, values); });
}

}  // namespace

std::string cell_text(const std::string& text, NumberText) { return text.empty() ? kNone : text; }

std::string cell_text(int value, NumberText) { return std::to_string(value); }

std::string cell_text(double value, NumberText number) { return number(value); }

std::string cell_text(const std::optional<double>& value, NumberText number) {
  return value ? number(*value) : kNone;
}

std::string cell_text(const std::optional<Estimate>& estimate, NumberText number) {
  return estimate ? number(estimate->median) : kNone;
}

plot::Point point_of(double x, const Estimate& estimate, double factor) {
  if (estimate.count < 2) return {x, factor * estimate.median};
  return {x, factor * estimate.median, factor * estimate.low, factor * estimate.high};
}

std::optional<plot::Point> point_of(
    double x, const std::optional<Estimate>& estimate, double factor) {
  if (!estimate) return std::nullopt;
  return point_of(x, *estimate, factor);
}

std::optional<plot::Point> point_of(double x, const std::optional<double>& value, double factor) {
  if (!value) return std::nullopt;
  return plot::Point{x, factor * *value};
}

std::string oversubscribed_mark(const CellResult& result) {
  return result.oversubscribed ? " (oversubscribed)" : "";
}

void add_if_any(plot::Figure& figure, plot::Series series) {
  if (!series.points.empty()) figure.series.push_back(std::move(series));
}

std::string medians_note(int rounds) {
  return concat(
      "Medians of up to ", rounds, rounds == 1 ? " round" : " rounds", "; whiskers are intervals.");
}

std::string extrapolated_text(double epoch_share) {
  if (epoch_share >= 1) return "";
  return concat(" Extrapolated from ", percent_text(epoch_share), " of an epoch or more.");
}

std::string noted(std::vector<std::string> parts) {
  std::erase(parts, "");
  return joined(parts, "; ");
}

double epoch_share(const CellResult& result) {
  const auto share = result.estimate("epoch_share");
  return share ? share->median : 1;
}

std::string cell_note(const CellResult& result, const std::string& value) {
  const std::string over = result.oversubscribed ? "oversubscribed" : "";
  if (!result.reason.empty()) return noted({over, cut(result.reason)});
  std::string failures;
  if (result.failures > 0) {
    failures = concat(
        result.failures, " of ", result.samples.size(), " failed: ", cut(last_failure(result)));
  }
  const double share = epoch_share(result);
  return noted({over, failures, outlier_note(result, value),
      share < 1 ? "extrapolated from " + percent_text(share) : ""});
}

std::vector<std::string> whole_reasons(const std::vector<CellResult>& results) {
  std::vector<std::string> lines;
  for (const CellResult& result : results) {
    const std::string reason = result.reason.empty() ? last_failure(result) : result.reason;
    if (reason.size() > kLongestReason) lines.push_back(result.cell.id + ": " + reason);
  }
  return lines;
}

std::string note_of_both(const std::string& dp, const std::string& ddp) {
  if (dp == ddp) return dp;
  return noted({dp.empty() ? "" : "dp: " + dp, ddp.empty() ? "" : "ddp: " + ddp});
}

std::string oversubscribed_note(bool any, const std::string& places) {
  if (!any) return "";
  return concat("oversubscribed: more ", places,
      " than cores; they compete for the same cores, so it is "
      "not a fair test of that many ",
      places);
}

std::string sample_table_id(const std::string& study) { return study + "-samples"; }

page::Table sample_table(const std::string& study, const std::vector<CellResult>& results,
    const std::vector<SampleColumn>& values) {
  std::vector<SampleRow> rows;
  for (const CellResult& result : results) {
    for (const Sample& sample : result.samples) rows.push_back({&result, &sample});
  }
  return sample_columns(study, values)
      .notes(
          {"calibration: a fixed piece of arithmetic just before the sample, slower when the clock "
           "is low or a neighbour busy; others: CPU time that other processes took meanwhile, as a "
           "share of the cores; outliers are shown and counted like the rest"})
      .of(rows);
}

}  // namespace lockstep::bench
