#include "bench/experiment/study.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

bool is_file_name(const std::string& id) {
  const auto fits = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '.' || letter == '_' || letter == '-';
  };
  constexpr std::size_t kLongest = 200;  // a name of a file may have 255 bytes
  return !id.empty() && id.front() != '.' && id.size() <= kLongest && std::ranges::all_of(id, fits);
}

void check_cell(const StudyCell& cell, const std::string& where) {
  check(is_file_name(cell.id), where,
      ": an id must be of up to 200 letters, digits, '.', '_' and '-' and not begin with '.'");
  check(!cell.command.empty() || !cell.not_measurable.empty(), where, ": has no command");
  check(cell.places >= 1, where, ": needs at least 1 place, has ", cell.places);
  check(cell.cores >= 0 && cell.rounds >= 0, where, ": cores and rounds must not be less than 0");
  std::set<std::string> names;
  for (const Setting& setting : cell.settings) {
    check(names.insert(setting.name).second, where, ": has the setting ", setting.name, " twice");
  }
  for (const std::string& variable : cell.environment) {
    const auto equals = variable.find('=');
    const bool is_named = equals != std::string::npos && equals > 0;
    check(is_named, where, ": an environment variable must be NAME=VALUE: ", variable);
  }
}

std::map<std::string, Estimate> estimates_of(const CellResult& cell) {
  std::map<std::string, std::vector<double>> by_name;
  for (const Sample& sample : cell.samples) {
    if (!sample.worked()) continue;
    for (const auto& [name, value] : sample.values) by_name[name].push_back(value);
  }
  std::map<std::string, Estimate> estimates;
  for (const auto& [name, values] : by_name) {
    if (std::ranges::all_of(values, [](double value) { return std::isfinite(value); }))
      estimates.emplace(name, estimate_median(values));
  }
  return estimates;
}

std::string reason_of(const CellResult& cell) {
  std::string reason = cell.cell.not_measurable;
  for (const Sample& sample : cell.samples) {
    if (sample.worked()) return "";
    reason = sample.failure.empty() ? sample.not_measurable : sample.failure;
  }
  return reason.empty() ? "not run yet" : reason;
}

CellResult result_of(const StudyCell& cell, std::vector<Sample> samples) {
  CellResult result{.cell = cell, .samples = std::move(samples), .estimates = {}, .reason = {}};
  std::ranges::sort(
      result.samples, [](const Sample& a, const Sample& b) { return a.round < b.round; });
  result.estimates = estimates_of(result);
  result.reason = reason_of(result);
  for (const Sample& sample : result.samples) {
    result.oversubscribed = result.oversubscribed || sample.oversubscribed;
    if (!sample.failure.empty()) ++result.failures;
  }
  return result;
}

}  // namespace

void check_study(const Study& study) {
  check(study.rounds >= 1, study.name, ": needs at least 1 round, has ", study.rounds);
  check(study.limit_seconds > 0, study.name, ": a sample needs time: ", study.limit_seconds, " s");
  check(static_cast<bool>(study.values), study.name, ": nothing reads the values of its samples");
  std::set<std::string> ids;
  for (const StudyCell& cell : study.cells) {
    const std::string where = concat(study.name, ": cell '", cell.id, "'");
    check_cell(cell, where);
    check(ids.insert(cell.id).second, where, ": two cells have this id");
  }
}

std::optional<Estimate> CellResult::estimate(const std::string& value) const {
  const auto found = estimates.find(value);
  return found == estimates.end() ? std::nullopt : std::optional<Estimate>(found->second);
}

std::map<int, double> CellResult::by_round(const std::string& value) const {
  std::map<int, double> values;
  for (const Sample& sample : samples) {
    const auto found = sample.values.find(value);
    if (!sample.worked() || found == sample.values.end()) continue;
    if (std::isfinite(found->second)) values[sample.round] = found->second;
  }
  return values;
}

std::vector<int> CellResult::outlier_rounds(const std::string& value) const {
  std::vector<int> rounds;
  std::vector<double> values;
  for (const auto& [round, number] : by_round(value)) {
    rounds.push_back(round);
    values.push_back(number);
  }
  const std::vector<bool> is_outlier = outliers(values);
  std::vector<int> found;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    if (is_outlier[i]) found.push_back(rounds[i]);
  }
  return found;
}

std::string CellResult::setting(const std::string& name) const {
  const auto found =
      std::ranges::find_if(cell.settings, [&](const Setting& s) { return s.name == name; });
  return found == cell.settings.end() ? "" : found->value;
}

std::vector<CellResult> cell_results(const Study& study, std::span<const Sample> samples) {
  std::map<std::string, std::vector<Sample>> by_cell;
  for (Sample& sample : latest({samples.begin(), samples.end()})) {
    if (sample.study == study.name) by_cell[sample.cell].push_back(std::move(sample));
  }
  std::vector<CellResult> results;
  for (const StudyCell& cell : study.cells) {
    results.push_back(result_of(cell, std::move(by_cell[cell.id])));
  }
  return results;
}

std::optional<Estimate> ratio_of(
    const CellResult& numerator, const CellResult& denominator, const std::string& value) {
  const auto below = denominator.by_round(value);
  std::vector<double> numerators;
  std::vector<double> denominators;
  for (const auto& [round, number] : numerator.by_round(value)) {
    const auto found = below.find(round);
    if (found == below.end()) continue;
    if (found->second == 0) return std::nullopt;
    numerators.push_back(number);
    denominators.push_back(found->second);
  }
  if (numerators.empty()) return std::nullopt;
  if (median(denominators) == 0) return std::nullopt;
  return estimate_ratio(numerators, denominators);
}

}  // namespace lockstep::bench
