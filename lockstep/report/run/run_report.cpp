#include "lockstep/report/run/run_report.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/event_file.h"
#include "lockstep/formats/json_object.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/record/metrics_writer.h"
#include "lockstep/report/text_table.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

double begin_of(const RunReport& run) {
  for (const MetricLine& line : run.folder.metrics.lines)
    if (line.unix_seconds) return *line.unix_seconds;
  return 0;
}

// Also of `runs/first/` and of `.`.
std::string name_of_run(const RunReport& run) {
  const fs::path whole = fs::weakly_canonical(run.folder.path);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::vector<fs::path> event_files(const std::vector<RunReport>& runs, const fs::path& directory) {
  std::set<std::string> names;
  std::vector<fs::path> files;
  for (const RunReport& run : runs) {
    const std::string name = name_of_run(run);
    check(!name.empty(),
        "report: this run's folder has no name to give its events: ", run.folder.path.string());
    check(names.insert(name).second, "report: --tensorboard names events by a run's folder, and ",
        "two of them are called ", name, "; report them apart, each into a DIR of its own");
    const fs::path folder = directory / name;
    check(!fs::exists(folder / "metrics.jsonl"), "report: --tensorboard would write into a run, ",
        folder.string(), "; name another DIR");
    files.push_back(folder / event_file_name(static_cast<std::int64_t>(begin_of(run))));
  }
  return files;
}

// Metric lines do not record the number of samples of an interval. A summary has the exact means,
// unless it was written at an earlier stop.
void take_exact_losses(const RunFolder& folder, RunHistory& history) {
  if (!folder.summary) return;
  for (EpochHistory& epoch : history.epochs) {
    const auto facts = folder.summary->epochs.find(epoch.epoch);
    const bool covers = folder.summary->steps.value_or(-1) >= epoch.step;
    if (covers && facts != folder.summary->epochs.end() && facts->second.train_loss) {
      epoch.train_loss = facts->second.train_loss;
    }
  }
}

using Json = JsonWriter::Json;
using Epoch = const EpochHistory&;

Json epoch_json(const EpochHistory& epoch, const std::vector<EpochField>& fields) {
  Json object = {{"epoch", epoch.epoch}, {"step", epoch.step}};
  for (const EpochField& field : fields)
    if (field.is_null_if_absent || field.value(epoch))
      put_number(object, field.key, field.value(epoch));
  return object;
}

Json restart_json(const Restart& restart) {
  Json object = {{"restart", restart.restart}, {"epoch", restart.epoch}, {"step", restart.step},
      {"made_again", restart.made_again}, {"furthest_step", restart.furthest_step}};
  put_number(object, "gap_seconds", restart.gap);
  return object;
}

Json run_json(const RunReport& run) {
  Json object = {
      {"run", run.folder.path.string()}, {"epochs", Json::array()}, {"restarts", Json::array()}};
  const std::vector<EpochField> fields = epoch_fields_of(run.history);
  for (const auto& epoch : run.history.epochs)
    object["epochs"].push_back(epoch_json(epoch, fields));
  for (const auto& restart : run.history.restarts) {
    object["restarts"].push_back(restart_json(restart));
  }
  put_scores(object, "test_", run.history.test);
  put_number(object, "seconds", run.history.seconds);
  put_number(object, "samples_per_s", run.history.samples_per_s);
  object["left_out"] = run.folder.metrics.left_out;
  object["snapshots"] = run.folder.snapshots;
  object["best_snapshot"] = JsonWriter::json_of(run.folder.best_snapshot);
  object["summary"] = JsonWriter::json_of(run.folder.summary);
  return object;
}

// A folder and its files may be a stranger's, and what they say goes to a terminal.
std::string shown(const std::string& text) {
  if (text.size() > 100) return printable(text);
  const std::string readable = printable_path(text);
  const bool is_plain = readable == text && text.find_first_of(" \"\\") == std::string::npos;
  return is_plain ? text : concat('"', readable, '"');
}

std::string shown_or_nothing(const std::string& text) { return text.empty() ? "-" : shown(text); }

std::string epoch_table(const RunHistory& history) {
  const std::vector<EpochField> fields = epoch_fields_of(history);
  std::vector<std::string> heads{"epoch", "step"};
  for (const EpochField& field : fields) heads.push_back(field.title);
  TextTable table(heads);
  auto restart = history.restarts.begin();
  for (const EpochHistory& epoch : history.epochs) {
    for (; restart != history.restarts.end() && restart->epoch <= epoch.epoch; ++restart)
      table.add_line("  " + restart_text(*restart));
    std::vector<std::string> row{concat(epoch.epoch), concat(epoch.step)};
    for (const EpochField& field : fields) row.push_back(field.text(epoch));
    table.add_row(row);
  }
  return table.text();
}

std::string what_it_was(const SummaryFacts& facts) {
  std::string line =
      concat("  ", shown_or_nothing(facts.model), " on ", shown_or_nothing(facts.data));
  line += concat(", ", shown_or_nothing(facts.parallel));
  if (facts.world_size) line += concat(", world size ", *facts.world_size);
  if (facts.batch_size) line += concat(", ", *facts.batch_size, " a batch");
  if (!facts.precision.empty()) line += concat(", precision ", shown(facts.precision));
  return line + "\n";
}

std::string ending(const RunReport& run) {
  if (!run.folder.summary)
    return "no summary.json: it is still running, or its processes were killed\n";
  const SummaryFacts& facts = *run.folder.summary;
  std::string line = concat("stopped by ", shown_or_nothing(facts.stopped_by));
  if (facts.steps) line += concat(" at step ", *facts.steps);
  if (facts.exit) line += concat(", code ", *facts.exit);
  const auto& epochs = run.history.epochs;
  if (facts.steps && !epochs.empty() && epochs.back().step > *facts.steps) {
    line += concat("; that was before the last records, at step ", epochs.back().step);
  }
  line += "\n";
  if (facts.best_epoch && facts.best_value) {
    line += concat(
        "best ", shown_or_nothing(facts.eval_metric), " ", cell(facts.best_value, 4), " in epoch ");
    line += concat(*facts.best_epoch, "\n");
  }
  if (!facts.parameters_hash.empty())
    line += concat("hash of the parameters ", shown(facts.parameters_hash), "\n");
  return line;
}

std::string snapshot_line(const RunFolder& folder) {
  if (folder.snapshots.empty()) return "";
  std::string line = "snapshots at step";
  for (const std::int64_t step : folder.snapshots) {
    line += concat(step == folder.snapshots.front() ? " " : ", ", step);
    if (step == folder.best_snapshot) line += " (best)";
  }
  return line + "\n";
}

std::string test_line(const Scores& scores, const char* whose) {
  const ScoreName& main = main_score(scores);
  if (!(scores.*main.value)) return "";
  return concat("test ", main.title, whose, " ", cell(scores.*main.value, 4), "\n");
}

std::string text_of(const RunReport& run) {
  std::string text = shown(run.folder.path.string()) + "\n";
  if (run.folder.summary) text += what_it_was(*run.folder.summary);
  text += run.history.epochs.empty() ? "nothing is recorded yet\n" : epoch_table(run.history);
  text += test_line(run.history.test, "");
  if (run.folder.summary) text += test_line(run.folder.summary->best_test, " of the best weights");
  text += ending(run) + snapshot_line(run.folder);
  for (const std::string& line : run.folder.metrics.left_out) text += line + "\n";
  if (run.profile) text += profile_text(*run.profile);
  return text;
}

// Of runs of different tasks each has its own.
std::string test_head(const std::vector<RunReport>& runs) {
  std::set<std::string> titles;
  for (const RunReport& run : runs) {
    const Scores& scores = test_scores(run);
    if (scores != Scores()) titles.insert(main_score(scores).title);
  }
  if (titles.empty()) return "test accuracy";
  return titles.size() == 1 ? "test " + *titles.begin() : "test score";
}

std::string overview(const std::vector<RunReport>& runs) {
  TextTable table({"run", "model", "data", "parallel", "world size", "epochs", "step",
                      test_head(runs), "samples/s", "seconds", "restarts", "stopped by"},
      {true});
  for (const RunReport& run : runs) {
    const SummaryFacts facts = run.folder.summary.value_or(SummaryFacts());
    const auto& epochs = run.history.epochs;
    table.add_row({shown(run.folder.path.string()), shown_or_nothing(facts.model),
        shown_or_nothing(facts.data), shown_or_nothing(facts.parallel),
        facts.world_size ? concat(*facts.world_size) : "-", concat(epochs.size()),
        epochs.empty() ? "-" : concat(epochs.back().step),
        cell(test_scores(run).*main_score(test_scores(run)).value, 4),
        cell(run.history.samples_per_s, 0), cell(run.history.seconds, 2),
        concat(run.history.restarts.size()), shown_or_nothing(facts.stopped_by)});
  }
  return table.text();
}

std::vector<EpochField> make_epoch_fields() {
  std::vector<EpochField> fields{{.key = "train_loss",
      .title = "train loss",
      .value = [](Epoch epoch) { return epoch.train_loss; },
      .is_score = true}};
  for (const ScoreSet& set : kScoreSets)
    for (const ScoreName& score : kScores)
      fields.push_back({.key = concat(set.key, score.name),
          .title = concat(set.title, score.title),
          .value = [scores = set.scores, value = score.value](
                       Epoch epoch) { return epoch.*scores.*value; },
          .is_score = true,
          .is_null_if_absent = score.is_null_if_absent});
  fields.push_back({"lr", "lr", [](Epoch epoch) { return epoch.lr; }, std::nullopt});
  fields.push_back(
      {"samples_per_s", "samples/s", [](Epoch epoch) { return epoch.samples_per_s; }, 0});
  fields.push_back({"seconds", "seconds", [](Epoch epoch) { return epoch.seconds; }, 2});
  return fields;
}

// Rows are epochs, columns runs.
std::string side_by_side(const std::vector<RunReport>& runs, const EpochField& field) {
  std::map<std::int64_t, std::vector<std::string>> rows;
  std::vector<std::string> heads{"epoch"};
  bool any = false;
  for (std::size_t column = 0; column < runs.size(); ++column) {
    heads.push_back(shown(runs[column].folder.path.string()));
    for (const EpochHistory& epoch : runs[column].history.epochs) {
      auto& cells = rows.try_emplace(epoch.epoch, runs.size(), "-").first->second;
      cells[column] = field.text(epoch);
      any = any || field.value(epoch);
    }
  }
  if (!any) return "";
  TextTable table(std::move(heads));
  for (auto& [epoch, cells] : rows) {
    cells.insert(cells.begin(), concat(epoch));
    table.add_row(std::move(cells));
  }
  return concat("\n", field.title, "\n", table.text());
}

}  // namespace

const Scores& test_scores(const RunReport& run) {
  const bool has_own = run.folder.summary && run.folder.summary->test != Scores();
  return has_own ? run.folder.summary->test : run.history.test;
}

std::string events_of_run(const RunReport& run) {
  double time = begin_of(run);
  std::string events = version_event({time});
  for (const MetricLine& line : merged(run.folder.metrics.lines)) {
    if (line.record.rank != 0) continue;
    time = line.unix_seconds.value_or(time);
    events += scalars_event({time, line.record.step}, scalars_of(line.record));
  }
  return events;
}

std::vector<fs::path> write_run_events(
    const std::vector<RunReport>& runs, const fs::path& directory) {
  const std::vector<fs::path> files = event_files(runs, directory);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    make_folders(files[i].parent_path());
    replace_file(files[i], events_of_run(runs[i]));
  }
  return files;
}

RunReport read_run_report(const std::filesystem::path& path) {
  RunReport report{.folder = read_run_folder(path), .history = {}};
  report.history = run_history(report.folder.metrics.lines);
  take_exact_losses(report.folder, report.history);
  const std::filesystem::path profile = path / "profile" / "profile.json";
  if (std::filesystem::exists(profile))
    report.profile = read_profile(text_of_run_file(profile), profile.string());
  return report;
}

std::string report_json(const std::vector<RunReport>& runs) {
  Json object = {{"v", 1}, {"runs", Json::array()}};
  for (const RunReport& run : runs) object["runs"].push_back(run_json(run));
  // A folder's name need not be UTF-8.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string EpochField::text(const EpochHistory& epoch) const {
  return digits ? cell(value(epoch), *digits) : short_cell(value(epoch));
}

const std::vector<EpochField>& epoch_fields() {
  static const std::vector<EpochField> kFields = make_epoch_fields();
  return kFields;
}

std::vector<EpochField> epoch_fields_of(const RunHistory& history) {
  std::vector<EpochField> fields = epoch_fields();
  for (const ScoreSet& set : kScoreSets) {
    std::vector<const Scores*> all;
    for (const EpochHistory& epoch : history.epochs) all.push_back(&(epoch.*set.scores));
    for (const std::string& name : own_names(all))
      fields.push_back({.key = set.key + name,
          .title = set.title + printable_path(name),
          .value = [=, scores = set.scores](
                       Epoch epoch) { return own_number(epoch.*scores, name); },
          .is_null_if_absent = false});
  }
  return fields;
}

std::string restart_text(const Restart& restart) {
  std::string line = concat("restart ", restart.restart, " in epoch ", restart.epoch);
  if (restart.gap) line += concat(", ", cell(restart.gap, 1), " s after the record before");
  if (restart.made_again == 0) return line + ": nothing that was recorded was lost";
  const char* records = restart.made_again == 1 ? " record" : " records";
  return line + concat(": ", restart.made_again, records, " up to step ", restart.furthest_step,
                    " lost and made again, from step ", restart.step, " on");
}

std::string report_text(const std::vector<RunReport>& runs) {
  if (runs.size() == 1) return text_of(runs.front());
  std::string text = overview(runs);
  for (const EpochField& field : epoch_fields())
    if (field.is_score) text += side_by_side(runs, field);
  for (const RunReport& run : runs) {
    for (const std::string& line : run.folder.metrics.left_out) text += line + "\n";
  }
  return text;
}

}  // namespace lockstep
