#include <algorithm>
#include <numeric>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/report/evaluation/evaluation_report.h"
#include "lockstep/report/text_table.h"

namespace lockstep::bench {
namespace {

constexpr int kDigits = 4;
constexpr std::size_t kMostMistakes = 10;
constexpr std::size_t kHardest = 20;

std::string scores_text(const EvaluationResult& result) {
  std::string text;
  for (const ScoreName& score : kScores) {
    const std::string title = score.title;
    const auto& value = result.scores.*score.value;
    if (value) text += title + std::string(12 - title.size(), ' ') + cell(value, kDigits) + "\n";
  }
  return text;
}

// All of them, or the hardest, which come first then.
std::vector<std::int64_t> classes_shown(const EvaluationResult& result) {
  const auto& all = result.confusion.of_class();
  std::vector<std::int64_t> classes(all.size());
  std::iota(classes.begin(), classes.end(), 0);
  if (result.confusion.classes() <= kMostClassesShown) return classes;
  const auto accuracy = [&](std::int64_t number) {
    return all[static_cast<std::size_t>(number)].accuracy().value_or(2);  // none: last
  };
  std::stable_sort(classes.begin(), classes.end(),
      [&](std::int64_t a, std::int64_t b) { return accuracy(a) < accuracy(b); });
  classes.resize(kHardest);
  return classes;
}

std::string classes_text(const EvaluationResult& result) {
  TextTable table({"class", "samples", "right", "accuracy"}, /*names_first=*/true);
  const auto shown = classes_shown(result);
  for (const std::int64_t number : shown) {
    const Confusion::OfClass& own = result.confusion.of_class()[static_cast<std::size_t>(number)];
    table.add_row({class_text(result, number), std::to_string(own.samples),
        std::to_string(own.right), cell(own.accuracy(), kDigits)});
  }
  const bool is_part = std::ssize(shown) < result.confusion.classes();
  return concat(is_part ? "The hardest classes:\n" : "", table.text());
}

std::string pairs_text(const EvaluationResult& result) {
  const std::int64_t classes = result.confusion.classes();
  std::vector<std::string> heads{"class"};
  for (std::int64_t each = 0; each < classes; ++each) heads.push_back(std::to_string(each));
  TextTable table(heads, /*names_first=*/true);
  for (std::int64_t label = 0; label < classes; ++label) {
    std::vector<std::string> row{class_text(result, label)};
    for (std::int64_t predicted = 0; predicted < classes; ++predicted)
      row.push_back(std::to_string(result.confusion.count(label, predicted)));
    table.add_row(row);
  }
  return "Samples of each class, by what they were taken for:\n" + table.text();
}

std::string mistakes_text(const EvaluationResult& result) {
  TextTable table({"class", "taken for", "samples"}, {true, true, false});
  for (const auto& mistake : result.confusion.mistakes(kMostMistakes))
    table.add_row({class_text(result, mistake.label), class_text(result, mistake.predicted),
        std::to_string(mistake.count)});
  return "The most frequent mistakes:\n" + table.text();
}

}  // namespace

std::string class_text(const EvaluationResult& result, std::int64_t number) {
  const std::string& name = result.class_names[static_cast<std::size_t>(number)];
  const std::string text = std::to_string(number);
  return name == text ? text : concat(text, " ", name);
}

std::string loss_text(const EvaluationResult& result) {
  if (result.loss_plugin.empty()) return result.loss;
  return concat(result.loss, " of ", printable_path(result.loss_plugin));
}

std::string weights_text(const WeightsSource& weights) {
  const std::string which = weights.which == "file" ? "" : concat("the run's ", weights.which);
  const std::string between = which.empty() || weights.remark.empty() ? "" : ": ";
  const std::string known = which + between + weights.remark;
  return weights.file + (known.empty() ? "" : concat(" (", known, ")"));
}

std::string evaluation_text(const EvaluationResult& result) {
  const std::string skipped =
      result.skipped == 0 ? "" : concat(" (", result.skipped, " could not be read)");
  return concat(result.model, " on ", result.data, ", ", result.split, ": ", result.samples,
      " samples", skipped, ", precision ", result.precision, ", loss ", loss_text(result),
      "\nWeights: ", weights_text(result.weights), "\n\n", scores_text(result), "\n",
      classes_text(result), "\n",
      result.confusion.classes() <= kMostPairsShown ? pairs_text(result) : mistakes_text(result));
}

}  // namespace lockstep::bench
