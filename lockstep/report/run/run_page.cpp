#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/report/page/page.h"
#include "lockstep/report/run/run_report.h"
#include "lockstep/report/text_table.h"

namespace lockstep {
namespace {

using Facts = std::vector<std::vector<std::string>>;

/// A line of a figure: a score in each epoch, or in each line of metrics.jsonl of a split.
struct Curve {
  std::string name;
  const char* split;
  Scores EpochHistory::*set;  ///< null: the training loss
  std::function<std::optional<double>(const Scores&)> score;
};

std::vector<Curve> curves_of(const std::string& figure) {
  std::vector<Curve> curves;
  if (figure == "loss")
    curves.push_back(
        {"training", "train", nullptr, [](const Scores& scores) { return scores.loss; }});
  for (const ScoreSet& set : kScoreSets) {
    for (const ScoreName& score : kScores) {
      if (score.figure != figure) continue;
      // The main score of a figure is in its title.
      const std::string title = figure == score.title ? "" : concat(", ", score.title);
      curves.push_back({set.words + title, set.split, set.scores,
          [value = score.value](const Scores& scores) { return scores.*value; }});
    }
  }
  return curves;
}

// Of a number of a program's own.
std::vector<Curve> own_curves_of(const std::string& name) {
  std::vector<Curve> curves;
  for (const ScoreSet& set : kScoreSets)
    curves.push_back({set.words, set.split, set.scores,
        [=](const Scores& scores) { return own_number(scores, name); }});
  return curves;
}

std::vector<std::string> own_names_of(const RunReport& run) {
  std::vector<const Scores*> all;
  for (const MetricLine& line : run.folder.metrics.lines) all.push_back(&line.record.scores);
  return own_names(all);
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

void add_test(Facts& facts, const Scores& scores, const char* whose) {
  const ScoreName& main = main_score(scores);
  const std::optional<double>& value = scores.*main.value;
  if (value) facts.push_back({concat("test ", main.title, whose), cell(value, 4)});
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
  add_test(facts, test_scores(run), "");
  add_test(facts, summary.best_test, " of the best weights");
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
  page::Table table{
      .id = "epochs", .title = "Epochs", .columns = {{"epoch"}, {"step"}}, .rows = {}};
  const auto& epochs = run.history.epochs;
  for (const EpochHistory& epoch : epochs)
    table.rows.push_back({concat(epoch.epoch), concat(epoch.step)});
  for (const EpochField& field : epoch_fields_of(run.history)) {
    const auto has_value = [&](const EpochHistory& epoch) {
      return field.value(epoch).has_value();
    };
    if (std::ranges::none_of(epochs, has_value)) continue;
    table.columns.push_back({field.title});
    for (std::size_t i = 0; i < epochs.size(); ++i) table.rows[i].push_back(field.text(epochs[i]));
  }
  for (const Restart& restart : run.history.restarts) table.notes.push_back(restart_text(restart));
  return table;
}

void add_point(plot::Series& series, std::int64_t x, const std::optional<double>& y) {
  // A loss that diverged has no place in a picture; the table shows it.
  if (y && std::isfinite(*y)) series.points.push_back({static_cast<double>(x), *y});
}

plot::Series series_of(const RunReport& run, const Curve& curve, bool by_steps) {
  plot::Series series{.name = curve.name, .points = {}, .style = plot::Series::Style::kLine};
  if (!by_steps) {
    for (const EpochHistory& epoch : run.history.epochs)
      add_point(series, epoch.epoch,
          curve.set == nullptr ? epoch.train_loss : curve.score(epoch.*curve.set));
    return series;
  }
  for (const MetricLine& line : merged(run.folder.metrics.lines)) {
    const MetricRecord& record = line.record;
    if (record.rank == 0 && record.split == curve.split)
      add_point(series, record.step, curve.score(record.scores));
  }
  return series;
}

plot::Figure figure_of(
    const RunReport& run, const std::string& what, const std::vector<Curve>& curves) {
  const bool steps = run.history.epochs.size() == 1;
  plot::Figure figure{.id = what,
      .title = concat(what, " by ", steps ? "step" : "epoch"),
      .x = {.label = steps ? "step" : "epoch"},
      .y = {.label = what}};
  if (what == "accuracy" || what == "score") figure.y.most = 1;
  figure.title.front() = static_cast<char>(std::toupper(figure.title.front()));
  for (const Curve& curve : curves) {
    plot::Series series = series_of(run, curve, steps);
    if (!series.points.empty()) figure.series.push_back(std::move(series));
  }
  return figure;
}

// A figure for each kind of score that was measured, and for each number of a program's own.
std::vector<plot::Figure> figures_of(const RunReport& run) {
  std::vector<plot::Figure> all;
  const auto add = [&](plot::Figure figure) {
    if (!figure.series.empty()) all.push_back(std::move(figure));
  };
  std::set<std::string> made;
  for (const ScoreName& score : kScores)
    if (made.insert(score.figure).second)
      add(figure_of(run, score.figure, curves_of(score.figure)));
  for (const std::string& name : own_names_of(run))
    add(figure_of(run, printable_path(name), own_curves_of(name)));
  for (plot::Figure& figure : all)
    if (!plot::is_name(figure.id)) figure.id = concat("figure-", &figure - all.data());
  return all;
}

constexpr double kGigaFlop = 1e9;

// Without the digits that short cells have to tell small values from 0.
std::string milliseconds(double value) { return cell(std::round(100 * value) / 100, 2); }

bool is_quiet(StepPhase phase) {
  return phase == StepPhase::kStages || phase == StepPhase::kIdle || phase == StepPhase::kOther;
}

std::string thread_of(const RankProfile& rank, const LaneProfile& lane) {
  return concat("rank ", rank.rank, lane.is_main ? "" : ", ", lane.is_main ? "" : lane.thread);
}

page::Table phases_table(const RunProfile& profile) {
  page::Table table{.id = "profile_phases",
      .title = "Where a step's time went",
      .columns = {{"thread", true}, {"step [ms]"}},
      .rows = {}};
  const bool has_waits = profile.ranks.front().unwaited_step.has_value();
  if (has_waits) table.columns.push_back({"step without waits [ms]"});
  const std::vector<StepPhase> phases = shown_phases(profile);
  for (const StepPhase phase : phases) table.columns.push_back({concat(name_of(phase), " [ms]")});
  for (const RankProfile& rank : profile.ranks) {
    for (const LaneProfile& lane : rank.lanes) {
      std::vector<std::string> row{thread_of(rank, lane), milliseconds(rank.step)};
      if (has_waits) row.push_back(milliseconds(rank.unwaited_step.value_or(0)));
      for (const StepPhase phase : phases) row.push_back(milliseconds(lane.of(phase)));
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

page::Table layers_table(const RankProfile& rank) {
  page::Table table{.id = "profile_layers",
      .title = concat("Layers of rank ", rank.rank, ", summed over its threads"),
      .columns = {{"layer", true}, {"forward [ms]"}, {"backward [ms]"}, {"GFLOP"}},
      .rows = {}};
  for (const LayerProfile& layer : rank.layers)
    table.rows.push_back(
        {layer.name.empty() ? "outside of layers" : layer.name, milliseconds(layer.forward),
            milliseconds(layer.backward), cell(layer.flops / kGigaFlop, 3)});
  return table;
}

// Where the time of a step went, on each rank and by layers, and the picture of one step.
page::Section section_of_profile(const RunProfile& profile) {
  page::Section section{.title = "Profile",
      .question = "Where does the time of a step go?",
      .conclusion = {.answer = arithmetic_text(profile)},
      .tables = {phases_table(profile), layers_table(profile.ranks.front())}};
  for (const RankProfile& rank : profile.ranks)
    if (!rank.timeline.empty()) section.timelines.push_back(timeline_of(rank));
  return section;
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
  section.figures = figures_of(run);
  page::Page page{.title = "Lockstep run: " + run.folder.path.lexically_normal().string(),
      .sections = {std::move(section)}};
  if (run.profile) page.sections.push_back(section_of_profile(*run.profile));
  return page;
}

void write_run_page(const RunReport& run) {
  replace_file(run.folder.path / "report.html", page::to_html(page_of_run(run)));
}

std::vector<plot::Timeline::Kind> kinds_of_phases() {
  std::vector<plot::Timeline::Kind> kinds;
  for (const auto& phase : names_of(StepPhase{}))
    kinds.push_back({std::string(phase.name), is_quiet(phase.value)});
  return kinds;
}

// The ranks begin their steps together, but each shows the one that is its own median.
plot::Timeline timeline_of(const RankProfile& rank) {
  plot::Timeline timeline{.id = concat("profile-rank-", rank.rank),
      .title = concat("One step of rank ", rank.rank),
      .unit = "milliseconds",
      .rows = {},
      .kinds = {}};
  timeline.kinds = kinds_of_phases();
  for (const LaneProfile& lane : rank.lanes)
    timeline.rows.push_back(lane.is_main ? "main" : lane.thread);
  for (const TimelineSpan& box : rank.timeline) {
    if (box.lane == rank.lanes.size() && timeline.rows.size() == rank.lanes.size())
      timeline.rows.emplace_back("gradients on their way");
    timeline.length = std::max(timeline.length, box.end);
    timeline.boxes.push_back({.row = box.lane,
        .kind = static_cast<std::size_t>(box.phase),
        .begin = std::max(0.0, box.begin),
        .end = box.end,
        .name = box.name});
  }
  return timeline;
}

}  // namespace lockstep
