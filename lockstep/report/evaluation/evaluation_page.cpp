#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/report/evaluation/evaluation_report.h"
#include "lockstep/report/text_table.h"

namespace lockstep::bench {
namespace {

constexpr int kDigitsOnPage = 4;
constexpr std::size_t kMistakesOnPage = 20;

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
      table.rows.push_back({score.title, cell(result.scores.*score.value, kDigitsOnPage)});
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
    const auto at = static_cast<std::size_t>(number);
    const Confusion::OfClass& own = result.confusion.of_class()[at];
    table.rows.push_back({class_text(result, number), std::to_string(own.samples),
        std::to_string(own.right), cell(own.accuracy(), kDigitsOnPage), mistakes[at]});
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

page::Table mistakes_table(const EvaluationResult& result) {
  page::Table table{.id = "mistakes",
      .title = "The most frequent mistakes",
      .columns = {{"class", true}, {"taken for", true}, {"samples"}},
      .rows = {}};
  for (const auto& mistake : result.confusion.mistakes(kMistakesOnPage))
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
      .tables = {mistakes_table(result)}};
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
  const std::string label = class_text(result, own.label);
  const std::string taken = own.predicted == own.label
                                ? "rightly taken for it"
                                : "taken for " + class_text(result, own.predicted);
  return {.png = sample.png,
      .caption = {concat("is ", label), taken, concat("loss ", cell(own.loss, kDigitsOnPage)),
          short_name(sample.name)}};
}

}  // namespace

page::Page page_of_evaluation(const EvaluationResult& result) {
  page::Section scores{.title = "Scores",
      .question = "",
      .conclusion = {.answer = concat("Accuracy ", cell(result.scores.top1, kDigitsOnPage), " on ",
                         result.samples, " samples")},
      .tables = {scores_table(result), classes_table(result)}};
  page::Page page{.title = concat("Lockstep evaluation: ", result.model, " on ", result.data, ", ",
                      result.split),
      .sections = {std::move(scores), confusion_section(result)}};
  if (result.worst.empty()) return page;
  page::Section worst{.title = "Worst samples",
      .question = "Those with the largest losses, the worst first, as the model sees them.",
      .conclusion = {.answer = concat("The largest loss is ",
                         cell(result.worst.front().judgement.loss, kDigitsOnPage))}};
  for (const WorstSample& sample : result.worst) worst.pictures.push_back(picture(result, sample));
  page.sections.push_back(std::move(worst));
  return page;
}

void write_evaluation_page(const EvaluationResult& result, const std::filesystem::path& file) {
  replace_file(file, page::to_html(page_of_evaluation(result)));
}

}  // namespace lockstep::bench
