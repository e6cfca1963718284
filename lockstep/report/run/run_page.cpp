#include "lockstep/report/run/run_page.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/report/page/page.h"
#include "lockstep/report/run/profile_page.h"
#include "lockstep/report/text_table.h"

namespace lockstep::bench {
namespace {

using Facts = std::vector<std::vector<std::string>>;
using Style = plot::Series::Style;

using Value = std::function<std::optional<double>(const EpochHistory&)>;

/// A line of a figure: its value in each epoch, or in each line of metrics.jsonl of a split.
struct Curve {
  std::string name;
  const char* split;
  Value of_epoch;
  std::optional<double> Scores::*of_line;
};

Curve curve_of(const ScoreSet& set, const ScoreName& score) {
  // The main score of a figure is in its title.
  const bool is_named = !score.is_always_shown;
  return {.name = std::string(set.words) + (is_named ? concat(", ", score.title) : ""),
      .split = set.split,
      .of_epoch = [scores = set.scores, value = score.value](
                      const EpochHistory& epoch) { return epoch.*scores.*value; },
      .of_line = score.value};
}

std::vector<Curve> losses() {
  std::vector<Curve> curves = {{"training", "train",
      [](const EpochHistory& epoch) { return epoch.train_loss; }, &Scores::loss}};
  for (const ScoreSet& set : kScoreSets) curves.push_back(curve_of(set, kScores[0]));
  return curves;
}

std::vector<Curve> accuracies() {
  std::vector<Curve> curves;
  for (const ScoreSet& set : kScoreSets)
    for (const ScoreName& score : kScores)
      if (score.value != &Scores::loss) curves.push_back(curve_of(set, score));
  return curves;
}

template <class Value>
void add_fact(Facts& facts, const char* name, const std::optional<Value>& value) {
  if (value) facts.push_back({name, concat(*value)});
}

void add_fact(Facts& facts, const char* name, const std::string& value) {
  if (!value.empty()) facts.push_back({name, value});
}

std::string best_text(const SummaryFacts& summary) {
  if (!summary.best_epoch || !summary.best_value) return "";
  return concat(
      summary.eval_metric, " ", cell(summary.best_value, 4), " in epoch ", *summary.best_epoch);
}

// What `stopped_by` of summary.json means.
std::string ending_of(const std::string& stopped_by) {
  if (stopped_by == "epochs") return "all epochs done";
  if (stopped_by == "max-steps") return "all steps done";
  if (stopped_by == "time") return "the time limit was reached";
  if (stopped_by == "signal") return "stopped by a signal";
  return stopped_by == "error" ? "ended by an error" : stopped_by;
}

// The page's first sentence.
std::string outcome_of(const RunReport& run) {
  if (run.history.epochs.empty()) return "Nothing is recorded yet.";
  if (!run.folder.summary) {
    return concat("It is still running, or was killed: step ", run.history.epochs.back().step, ".");
  }
  const SummaryFacts& summary = *run.folder.summary;
  const std::string best = best_text(summary);
  return concat(summary.steps.value_or(0), " steps, ", ending_of(summary.stopped_by),
      best.empty() ? "" : "; best ", best, ".");
}

Facts facts_of(const RunReport& run) {
  const SummaryFacts summary = run.folder.summary.value_or(SummaryFacts());
  Facts facts;
  add_fact(facts, "model", summary.model);
  add_fact(facts, "data", summary.data);
  add_fact(facts, "parallel", summary.parallel);
  add_fact(facts, "world size", summary.world_size);
  add_fact(facts, "batch size", summary.batch_size);
  add_fact(facts, "precision", summary.precision);
  add_fact(facts, "steps", summary.steps);
  add_fact(facts, "stopped by",
      run.folder.summary ? summary.stopped_by : "still running, or its processes were killed");
  add_fact(facts, "best", best_text(summary));
  const auto test = summary.test.top1 ? summary.test.top1 : run.history.test.top1;
  if (test) add_fact(facts, "test accuracy", cell(test, 4));
  if (summary.best_test.top1)
    add_fact(facts, "test accuracy of the best weights", cell(summary.best_test.top1, 4));
  add_fact(facts, "seconds of training", cell(run.history.seconds, 2));
  if (run.history.samples_per_s) add_fact(facts, "samples/s", cell(run.history.samples_per_s, 0));
  add_fact(facts, "restarts", std::optional(run.history.restarts.size()));
  add_fact(facts, "hash of the parameters", summary.parameters_hash);
  add_fact(facts, "resumed from", summary.resumed_from);
  return facts;
}

page::Table facts_table(const RunReport& run) {
  return {.id = "facts",
      .title = "The run",
      .columns = {{"what", true}, {"value", true}},
      .rows = facts_of(run),
      .notes = run.folder.metrics.left_out};
}

page::Table epochs_table(const RunReport& run) {
  page::Table table{.id = "epochs", .title = "Epochs", .columns = {}, .rows = {}};
  for (const EpochColumn& column : epoch_columns()) {
    const auto& epochs = run.history.epochs;
    const bool any = std::any_of(epochs.begin(), epochs.end(),
        [&](const EpochHistory& epoch) { return column.text(epoch) != "-"; });
    if (!any) continue;
    table.columns.push_back({column.head});
    table.rows.resize(epochs.size());
    for (std::size_t i = 0; i < epochs.size(); ++i) {
      table.rows[i].push_back(column.text(epochs[i]));
    }
  }
  for (const Restart& restart : run.history.restarts) table.notes.push_back(restart_text(restart));
  return table;
}

void add_point(plot::Series& series, std::int64_t x, const std::optional<double>& y) {
  // A loss that diverged has no place in a picture; the table shows it.
  if (y && std::isfinite(*y)) series.points.push_back({static_cast<double>(x), *y});
}

plot::Series by_epoch(const RunReport& run, const Curve& curve) {
  plot::Series series{.name = curve.name, .points = {}, .style = Style::kLine};
  for (const EpochHistory& epoch : run.history.epochs) {
    add_point(series, epoch.epoch, curve.of_epoch(epoch));
  }
  return series;
}

plot::Series by_step(const RunReport& run, const Curve& curve) {
  plot::Series series{.name = curve.name, .points = {}, .style = Style::kLine};
  for (const MetricLine& line : merged(run.folder.metrics.lines)) {
    const MetricRecord& record = line.record;
    if (record.rank != 0 || record.split != curve.split) continue;
    add_point(series, record.step, record.scores.*curve.of_line);
  }
  return series;
}

plot::Figure figure_of(const RunReport& run, const char* what, const std::vector<Curve>& curves) {
  const bool steps = run.history.epochs.size() == 1;
  plot::Figure figure{.id = what,
      .title = concat(what, " by ", steps ? "step" : "epoch"),
      .x = {.label = steps ? "step" : "epoch"},
      .y = {.label = what}};
  if (figure.id == "accuracy") figure.y.most = 1;
  figure.title.front() = static_cast<char>(std::toupper(figure.title.front()));
  for (const Curve& curve : curves) {
    plot::Series series = steps ? by_step(run, curve) : by_epoch(run, curve);
    if (!series.points.empty()) figure.series.push_back(std::move(series));
  }
  return figure;
}

}  // namespace

page::Page page_of_run(const RunReport& run) {
  const SummaryFacts summary = run.folder.summary.value_or(SummaryFacts());
  page::Section section{
      .title = summary.model.empty() ? "A run" : concat(summary.model, " on ", summary.data),
      .question = "",
      .conclusion = {.answer = outcome_of(run)},
      .tables = {facts_table(run)}};
  if (!run.history.epochs.empty()) section.tables.push_back(epochs_table(run));
  for (const plot::Figure& figure :
      {figure_of(run, "loss", losses()), figure_of(run, "accuracy", accuracies())}) {
    if (!figure.series.empty()) section.figures.push_back(figure);
  }
  page::Page page{.title = "Lockstep run: " + run.folder.path.lexically_normal().string(),
      .sections = {std::move(section)}};
  if (run.profile) page.sections.push_back(section_of_profile(*run.profile));
  return page;
}

void write_run_page(const RunReport& run) {
  replace_file(run.folder.path / "report.html", page::to_html(page_of_run(run)));
}

}  // namespace lockstep::bench
