#include "lockstep/report/evaluation/evaluation_report.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/report/text_table.h"

namespace lockstep {
namespace {

constexpr int kDigits = 4;
constexpr std::size_t kScoreWidth = 10;  // as wide as those of a classification
constexpr std::size_t kMostMistakes = 10, kMistakesOnPage = 20;
constexpr std::size_t kHardest = 20;
// The most classes of which a terminal shows every pair, and every class, and JSON every pair.
constexpr std::int64_t kMostPairsShown = 20, kMostClassesShown = 40, kMostPairsWritten = 1000;

// A class for people: its name, with its number before it where that says more.
std::string class_text(const EvaluationResult& result, std::int64_t number) {
  const std::string& name = result.class_names[static_cast<std::size_t>(number)];
  const std::string text = std::to_string(number);
  return name == text ? text : concat(text, " ", name);
}

// As in `mse`, `focal of nets.so`.
std::string loss_text(const EvaluationResult& result) {
  if (result.loss_plugin.empty()) return result.loss;
  return concat(result.loss, " of ", printable_path(result.loss_plugin));
}

std::string scores_text(const EvaluationResult& result) {
  std::vector<std::pair<std::string, double>> shown;
  for (const ScoreName& score : kScores)
    if (const auto& value = result.scores.*score.value) shown.emplace_back(score.title, *value);
  for (const auto& [name, value] : result.scores.more)
    shown.emplace_back(printable_path(name), value);
  std::size_t width = kScoreWidth;
  for (const auto& [title, value] : shown) width = std::max(width, title.size());
  std::string text;
  for (const auto& [title, value] : shown)
    text += title + std::string(width + 2 - title.size(), ' ') + cell(value, kDigits) + "\n";
  return text;
}

std::vector<std::string> class_row(const EvaluationResult& result, std::int64_t number) {
  const Confusion::OfClass& own = result.confusion.of_class()[static_cast<std::size_t>(number)];
  return {class_text(result, number), std::to_string(own.samples), std::to_string(own.right),
      cell(own.accuracy(), kDigits)};
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
  TextTable table({"class", "samples", "right", "accuracy"}, {true});
  const auto shown = classes_shown(result);
  for (const std::int64_t number : shown) table.add_row(class_row(result, number));
  const bool is_part = std::ssize(shown) < result.confusion.classes();
  return concat(is_part ? "The hardest classes:\n" : "", table.text());
}

page::Table class_scores_table(const EvaluationResult& result) {
  page::Table table{.id = "classes", .title = "Classes", .columns = {{"class", true}}, .rows = {}};
  for (const ClassScores& scores : result.of_classes) table.columns.push_back({scores.title});
  for (std::size_t number = 0; number < result.of_classes.front().values.size(); ++number) {
    table.rows.push_back({class_text(result, static_cast<std::int64_t>(number))});
    for (const ClassScores& scores : result.of_classes)
      table.rows.back().push_back(cell(scores.values[number], kDigits));
  }
  return table;
}

std::string pairs_text(const EvaluationResult& result) {
  const std::int64_t classes = result.confusion.classes();
  std::vector<std::string> heads{"class"};
  for (std::int64_t each = 0; each < classes; ++each) heads.push_back(std::to_string(each));
  TextTable table(heads, {true});
  for (std::int64_t label = 0; label < classes; ++label) {
    std::vector<std::string> row{class_text(result, label)};
    for (std::int64_t predicted = 0; predicted < classes; ++predicted)
      row.push_back(std::to_string(result.confusion.count(label, predicted)));
    table.add_row(row);
  }
  return "Samples of each class, by what they were taken for:\n" + table.text();
}

using Json = nlohmann::ordered_json;

Json weights_json(const WeightsSource& weights) {
  return {{"file", printable_path(weights.file)}, {"which", weights.which},
      {"remark", printable_path(weights.remark)}};
}

Json classes_json(const EvaluationResult& result) {
  Json classes = Json::array();
  for (const Confusion::OfClass& of_class : result.confusion.of_class()) {
    Json object = {{"class", classes.size()}, {"name", result.class_names[classes.size()]},
        {"samples", of_class.samples}, {"right", of_class.right}};
    put_number(object, "accuracy", of_class.accuracy());
    classes.push_back(std::move(object));
  }
  return classes;
}

// A row for each class, in it a column for what its samples were taken for.
Json confusion_json(const Confusion& confusion) {
  if (confusion.classes() > kMostPairsWritten) return nullptr;
  Json rows = Json::array();
  for (std::int64_t label = 0; label < confusion.classes(); ++label) {
    Json row = Json::array();
    for (std::int64_t predicted = 0; predicted < confusion.classes(); ++predicted)
      row.push_back(confusion.count(label, predicted));
    rows.push_back(std::move(row));
  }
  return rows;
}

Json number_or_null(const std::optional<std::int64_t>& number) {
  return number ? Json(*number) : Json(nullptr);
}

Json class_scores_json(const EvaluationResult& result) {
  Json classes = Json::array();
  for (std::size_t number = 0; number < result.of_classes.front().values.size(); ++number) {
    Json object = {{"class", number}, {"name", result.class_names[number]}};
    for (const ClassScores& scores : result.of_classes)
      put_number(object, scores.name, scores.values[number]);
    classes.push_back(std::move(object));
  }
  return classes;
}

Json worst_json(const std::vector<WorstSample>& worst) {
  Json samples = Json::array();
  for (const WorstSample& sample : worst) {
    const Judgement& own = sample.judgement;
    Json object = {{"index", own.index}, {"name", printable_path(sample.name)},
        {"class", number_or_null(own.label)}, {"predicted", number_or_null(own.predicted)}};
    put_number(object, "loss", own.loss);
    samples.push_back(std::move(object));
  }
  return samples;
}

page::Table scores_table(const EvaluationResult& result) {
  page::Table table{.id = "scores",
      .title = "Scores",
      .columns = {{"", true}, {"", true}},
      .rows = {{"model", result.model}, {"data", concat(result.data, ", ", result.split)},
          {"weights", printable_path(weights_text(result.weights))},
          {"precision", result.precision}, {"loss function", loss_text(result)},
          {"samples", std::to_string(result.samples)}}};
  for (const ScoreName& score : kScores)
    if (result.scores.*score.value)
      table.rows.push_back({score.title, cell(result.scores.*score.value, kDigits)});
  for (const auto& [name, value] : result.scores.more)
    table.rows.push_back({printable_path(name), cell(value, kDigits)});
  if (result.skipped > 0)
    table.rows.push_back({"could not be read", std::to_string(result.skipped)});
  return table;
}

// The mistakes are sorted, so the first of a class is its most frequent.
std::vector<std::string> usual_mistakes(const EvaluationResult& result) {
  std::vector<std::string> texts(result.class_names.size(), "-");
  for (const auto& mistake : result.confusion.mistakes(result.confusion.counts().size())) {
    std::string& text = texts[static_cast<std::size_t>(mistake.label)];
    if (text == "-") text = concat(class_text(result, mistake.predicted), " (", mistake.count, ")");
  }
  return texts;
}

page::Table classes_table(const EvaluationResult& result) {
  page::Table table{.id = "classes",
      .title = "Classes",
      .columns = {{"class", true}, {"samples"}, {"right"}, {"accuracy"},
          {"most often taken for", true}},
      .rows = {}};
  const auto mistakes = usual_mistakes(result);
  for (std::int64_t number = 0; number < result.confusion.classes(); ++number) {
    table.rows.push_back(class_row(result, number));
    table.rows.back().push_back(mistakes[static_cast<std::size_t>(number)]);
  }
  return table;
}

plot::HeatMap heat_map(const EvaluationResult& result) {
  plot::HeatMap map{.id = "confusion",
      .title = "Samples of each class, by what they were taken for",
      .rows = "class",
      .columns = "taken for",
      .names = {}};
  for (std::int64_t number = 0; number < result.confusion.classes(); ++number)
    map.names.push_back(class_text(result, number));
  for (const auto& [pair, count] : result.confusion.counts()) {
    const auto row = static_cast<std::size_t>(pair.first);
    const auto samples = result.confusion.of_class()[row].samples;
    map.cells.push_back({.row = row,
        .column = static_cast<std::size_t>(pair.second),
        .count = count,
        .share = static_cast<double>(count) / static_cast<double>(samples)});
  }
  return map;
}

page::Table mistakes_table(const EvaluationResult& result, std::size_t most) {
  page::Table table{.id = "mistakes",
      .title = "The most frequent mistakes",
      .columns = {{"class", true}, {"taken for", true}, {"samples"}},
      .rows = {}};
  for (const auto& mistake : result.confusion.mistakes(most))
    table.rows.push_back({class_text(result, mistake.label), class_text(result, mistake.predicted),
        std::to_string(mistake.count)});
  return table;
}

std::string most_frequent_mistake(const EvaluationResult& result) {
  const auto mistakes = result.confusion.mistakes(1);
  if (mistakes.empty()) return "No sample was taken for another class";
  const auto& most = mistakes.front();
  return concat("Most often ", class_text(result, most.label), " is taken for ",
      class_text(result, most.predicted), ": ", most.count, " of ",
      result.confusion.of_class()[static_cast<std::size_t>(most.label)].samples, " samples");
}

page::Section confusion_section(const EvaluationResult& result) {
  page::Section section{.title = "Confusion",
      .question =
          "A row is a class, its cells are what its samples were taken for; the darker, the "
          "larger their share of the class. On the diagonal is what was right.",
      .conclusion = {.answer = most_frequent_mistake(result)},
      .tables = {mistakes_table(result, kMistakesOnPage)}};
  if (result.class_names.size() <= plot::kMostHeatMapNames) {
    section.heat_maps.push_back(heat_map(result));
  } else {
    section.question = concat("There are ", result.class_names.size(), " classes, and a map shows ",
        plot::kMostHeatMapNames, " at most; --json has every pair of up to ", kMostPairsWritten,
        ".");
  }
  return section;
}

// Of a file the folder of its class and its own: where the set lies says nothing about the image.
std::string short_name(const std::string& name) {
  const std::filesystem::path path = name;
  if (!path.is_absolute()) return printable_path(name);
  return printable_path((path.parent_path().filename() / path.filename()).string());
}

page::Picture picture(const EvaluationResult& result, const WorstSample& sample) {
  const Judgement& own = sample.judgement;
  page::Picture shown{
      .caption = {concat("loss ", cell(own.loss, kDigits)), short_name(sample.name)}};
  if (own.label && own.predicted) {
    const std::string taken = own.predicted == own.label
                                  ? "rightly taken for it"
                                  : "taken for " + class_text(result, *own.predicted);
    shown.caption.insert(
        shown.caption.begin(), {concat("is ", class_text(result, *own.label)), taken});
  }
  if (!sample.png.empty()) shown.looks = {{sample.png, joined(shown.caption)}};
  return shown;
}

std::string conclusion(const EvaluationResult& result) {
  const ScoreName& main = main_score(result.scores);
  std::string title = main.title;
  title.front() = static_cast<char>(std::toupper(title.front()));
  return concat(
      title, " ", cell(result.scores.*main.value, kDigits), " on ", result.samples, " samples");
}

// Of a classification its classes and what they were taken for, of another task what it has of
// classes.
std::string details_text(const EvaluationResult& result) {
  if (!result.of_classes.empty()) return "\n" + page::to_text(class_scores_table(result));
  if (result.confusion.classes() == 0) return "";
  page::Table mistakes = mistakes_table(result, kMostMistakes);
  mistakes.title += ':';
  return concat("\n", classes_text(result), "\n",
      result.confusion.classes() <= kMostPairsShown ? pairs_text(result) : page::to_text(mistakes));
}

}  // namespace

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
      "\nWeights: ", weights_text(result.weights), "\n\n", scores_text(result),
      details_text(result));
}

std::string evaluation_json(const EvaluationResult& result) {
  Json object = {{"v", 1}, {"output", "eval"}, {"model", result.model}, {"data", result.data},
      {"split", result.split}, {"precision", result.precision}, {"loss_name", result.loss},
      {"loss_plugin",
          result.loss_plugin.empty() ? Json(nullptr) : Json(printable_path(result.loss_plugin))},
      {"weights", weights_json(result.weights)}, {"samples", result.samples},
      {"skipped", result.skipped}};
  put_scores(object, "", result.scores);
  object["classes"] = result.of_classes.empty() ? classes_json(result) : class_scores_json(result);
  object["confusion"] = confusion_json(result.confusion);
  object["worst"] = worst_json(result.worst);
  return object.dump();
}

page::Page page_of_evaluation(const EvaluationResult& result) {
  page::Section scores{.title = "Scores",
      .question = "",
      .conclusion = {.answer = conclusion(result)},
      .tables = {scores_table(result)}};
  const bool is_classification = result.confusion.classes() > 0;
  if (is_classification) scores.tables.push_back(classes_table(result));
  if (!result.of_classes.empty()) scores.tables.push_back(class_scores_table(result));
  page::Page page{.title = concat("Lockstep evaluation: ", result.model, " on ", result.data, ", ",
                      result.split),
      .sections = {std::move(scores)}};
  if (is_classification) page.sections.push_back(confusion_section(result));
  if (result.worst.empty()) return page;
  page::Section worst{.title = "Worst samples",
      .question = "Those with the largest losses, the worst first, as the model sees them.",
      .conclusion = {.answer = concat("The largest loss is ",
                         cell(result.worst.front().judgement.loss, kDigits))}};
  for (const WorstSample& sample : result.worst) worst.pictures.push_back(picture(result, sample));
  page.sections.push_back(std::move(worst));
  return page;
}

void write_evaluation_page(const EvaluationResult& result, const std::filesystem::path& file) {
  replace_file(file, page::to_html(page_of_evaluation(result)));
}

}  // namespace lockstep
