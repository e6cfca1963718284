#include "bench/studies/data_parallel.h"

#include <algorithm>
#include <set>
#include <vector>

#include "bench/study/verdict.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench::data_parallel {
namespace {

using plot::Figure;
using Cell = Measured<Point>;
using Cells = std::vector<Cell>;
using Style = plot::Series::Style;

constexpr int kMostPlaces = 4;
// What an epoch of the quick grid is cut down to: about a second of one core's work.
constexpr int kQuickImagesSmall = 15360;
constexpr int kQuickImagesLarge = 512;
constexpr int kImages = 60000;
constexpr double kQuickLimit = 300;           // seconds; a sample takes about five
constexpr double kFullLimit = 6.0 * 60 * 60;  // the largest set on one slow core
constexpr const char* kSmall = "mnist-small";
constexpr const char* kLarge = "mnist-large";
constexpr const char* kWays[] = {"dp", "ddp"};

// One place is the same for both ways, so it is measured once.
void add(std::vector<Point>& grid, const Point& point, int most_places, int images) {
  for (int places = 1; places <= most_places; places *= 2) {
    for (const char* way : kWays) {
      Point& each = grid.emplace_back(point);
      each.places = places;
      if (places > 1) each.way = way;
      if (images < kImages) each.steps = std::max(1, images / (each.batch * places));
      if (places == 1) break;
    }
  }
}

std::vector<Point> grid(const StudyOptions& options) {
  std::vector<Point> points;
  if (!options.full) {
    for (const int batch : {128, 512}) {
      add(points, {.model = kSmall, .batch = batch}, kMostPlaces, options.work * kQuickImagesSmall);
    }
    // A step of it on four places of two cores takes seconds, and is not a fair test there.
    add(points, {.model = kLarge, .batch = 128}, 2, options.work * kQuickImagesLarge);
    return points;
  }
  for (const char* model : {kSmall, kLarge}) {
    for (const int repeat : {1, 4, 8}) {
      for (const int batch : {128, 256, 512}) {
        add(points, {.model = model, .repeat = repeat, .batch = batch}, kMostPlaces, kImages);
      }
    }
  }
  return points;
}

std::string id_of(const Point& point) {
  std::string id = concat(point.model, "-r", point.repeat, "-b", point.batch, "-p", point.places);
  if (point.places > 1) id += "-" + point.way;
  // An epoch that is cut is other work than a whole one.
  return point.steps > 0 ? concat(id, "-s", point.steps) : id;
}

// Ten thousand images take the large net half a minute, and so few steps taught it nothing.
bool is_tested(const Point& point) { return point.steps == 0 || point.model == kSmall; }

std::string training_set(const StudyOptions& options) {
  return options.data_of({"fashion-mnist", "mnist"}, "fashion-mnist");
}

Words command_of(const Point& point, const StudyOptions& options) {
  Words command = train_command("--model", point.model, "--data", training_set(options), "--repeat",
      point.repeat, "--batch-size", point.batch, "--opt", "adam", "--lr", "0.001", "--epochs", 2,
      // Once, after both epochs: an evaluation between them would leave a snapshot of the best
      // epoch to be written while the second is timed.
      "--val-interval", is_tested(point) ? "0" : "never", "--snapshot-interval", "never",
      "--progress", "none", spreading_flags(point.way, point.places));
  if (point.steps > 0) add_words(command, words_of("--limit-train-batches", point.steps));
  return command;
}

// What costs minutes or proves little is measured less often in the quick grid.
int rounds_of(const Point& point, const StudyOptions& options) {
  if (options.full || options.rounds > 0) return 0;
  if (options.oversubscribed(point.places)) return 1;
  return point.model == kLarge ? 2 : 0;
}

const EpochFacts& epoch(const SummaryFacts& facts, std::int64_t number, const std::string& file) {
  const auto found = facts.epochs.find(number);
  const bool whole = found != facts.epochs.end() && found->second.train_seconds.has_value() &&
                     found->second.samples.has_value() && *found->second.samples > 0;
  if (!whole) throw DataError(concat(file, ": has no time of epoch ", number));
  return found->second;
}

// Finds the cell of the same model, repeat and batch; nullptr if there is none.
const Cell* sibling(const Cell& cell, int places, const std::string& way) {
  return first_where(*cell.cells, [&](const Cell& each) {
    return each.model == cell.model && each.repeat == cell.repeat && each.batch == cell.batch &&
           each.places == places && each.way == way;
  });
}

const Cell* ddp_of(const Cell& dp) { return sibling(dp, dp.places, "ddp"); }

bool is_dp_beside_ddp(const Cell& cell) { return cell.way == "dp" && ddp_of(cell) != nullptr; }

// How many times as fast the second epoch is as on one place; nothing for one place.
std::optional<Estimate> speed_up(const Cell& cell) {
  if (cell.places == 1) return std::nullopt;
  return ratio_of(sibling(cell, 1, "serial"), &cell, kSecondEpoch);
}

std::optional<double> efficiency(const Cell& cell) { return share_of(speed_up(cell), cell.places); }

// How many times as long as one of ddp a second epoch of dp takes.
std::optional<Estimate> dp_over_ddp(const Cell& dp) {
  return ratio_of(&dp, ddp_of(dp), kSecondEpoch);
}

const PublishedEpochs* find_published(const Cell& cell, int places) {
  return data_parallel::find_published(cell.model, cell.repeat, cell.batch, places);
}

std::optional<double> published_speed_up(const Cell& cell) {
  if (cell.way != "dp") return std::nullopt;
  const auto* one = find_published(cell, 1);
  const auto* these = find_published(cell, cell.places);
  if (one == nullptr || these == nullptr || !one->second_seconds || !these->second_seconds)
    return std::nullopt;
  return *one->second_seconds / *these->second_seconds;
}

// What is concluded.

std::vector<std::string> models_of(const Cells& cells) {
  std::vector<std::string> models;
  for (const Cell& cell : cells) {
    if (std::ranges::find(models, cell.model) == models.end()) models.push_back(cell.model);
  }
  return models;
}

int most_fair_places(const Cells& cells, const std::string& model) {
  int places = 1;
  for (const Cell& cell : cells) {
    if (cell.model == model && cell.is_fair() && speed_up(cell))
      places = std::max(places, cell.places);
  }
  return places;
}

// The verdict on the cells of a way; with `dp_over_ddp` on the choice between both.
Verdict verdict_of(const Cells& cells, const std::string& model, const std::string& way,
    std::optional<Estimate> (*ratio)(const Cell&)) {
  const int places = most_fair_places(cells, model);
  return verdict_of_fair(cells, [&](const Cell& cell) {
    const bool counts = cell.model == model && cell.places == places && cell.way == way;
    return counts ? ratio(cell) : std::nullopt;
  });
}

// `ddp is 1.60 times as fast as one place (surely faster in 3 of 3 cells)`.
std::string paid_text(const Cells& cells, const std::string& model, const std::string& way) {
  const Verdict verdict = verdict_of(cells, model, way, speed_up);
  if (verdict.ratios.empty()) return way + " has no number";
  const std::string text =
      concat(way, " is ", range_text(verdict.ratios), " times as fast as one place");
  if (!verdict.has_intervals()) return text;
  const std::string of_all = concat(" of ", verdict.ratios.size());
  if (verdict.above + verdict.below == 0) return concat(text, " (significant in 0", of_all, ")");
  std::vector<std::string> sides;
  if (verdict.above > 0)
    sides.push_back(concat(verdict.sure("faster"), " in ", verdict.above, of_all));
  if (verdict.below > 0)
    sides.push_back(concat(verdict.sure("slower"), " in ", verdict.below, of_all));
  return concat(text, " (", joined(sides), ")");
}

std::string advice(const Verdict& choice) {
  if (choice.is_above()) return ": take ddp";
  if (choice.is_below()) return ": take dp";
  return choice.ratios.empty() ? "" : "; neither is clearly faster";
}

std::string answer_of(const Cells& cells, const std::string& model) {
  const int places = most_fair_places(cells, model);
  if (places == 1) {
    return model + ": no cell with several places has a number and cores of its own.";
  }
  return concat(model, " on ", places, " places: ", paid_text(cells, model, "ddp"), "; ",
      paid_text(cells, model, "dp"), advice(verdict_of(cells, model, "dp", dp_over_ddp)), ".");
}

std::string about_choice(const Cells& cells, const std::string& model) {
  const Verdict choice = verdict_of(cells, model, "dp", dp_over_ddp);
  if (choice.ratios.empty()) return "";
  return concat(model, ": an epoch of dp took ", range_text(choice.ratios),
      " times as long as one of ddp; a significant difference in ", choice.above + choice.below,
      " of ", choice.ratios.size(), choice.ratios.size() == 1 ? " cell." : " cells.");
}

std::string about_extrapolation(const Cells& cells) {
  std::vector<std::string> list;
  for (const std::string& model : models_of(cells)) {
    Cells of_model = cells;
    std::erase_if(of_model, [&](const Cell& cell) { return cell.model != model; });
    const double share = least_epoch_share(of_model);
    if (share < 1) list.push_back(concat(model, " from ", percent_text(share)));
  }
  return list.empty() ? ""
                      : concat("Epoch times are extrapolated: ", joined(list), " of an epoch.");
}

std::string about_published(const Cells& cells) {
  std::vector<std::string> list;
  for (const Cell& cell : cells) {
    const auto published = published_speed_up(cell);
    if (!published) continue;
    list.push_back(concat(ratio_text(*published), " (", cell.model, ", ", cell.places,
        " GPUs, batch ", cell.batch, ")"));
  }
  return list.empty() ? "" : concat("Published speed-ups of dp on Tesla K80s: ", joined(list), ".");
}

// Answers for each net which way pays on the most places that had cores of their own.
page::Conclusion conclusion(const Cells& cells) {
  std::vector<std::string> answers, remarks;
  for (const std::string& model : models_of(cells)) {
    answers.push_back(answer_of(cells, model));
    remarks.push_back(about_choice(cells, model));
  }
  remarks.insert(remarks.end(),
      {verdict_of_fair(cells, speed_up).explained(), about_places(cells),
          about_extrapolation(cells), about_missing(results_of(cells)), about_published(cells)});
  return {.answer = in_one(answers), .remarks = remarks};
}

// Tables.

std::string note_of(const Cell& cell) { return cell_note(cell.result, kSecondEpoch); }

TableOf<Cell> table_of(const char* what, const char* title) {
  TableOf<Cell> table(std::string("data-parallel-") + what, title);
  return table.name("model", &Cell::model)
      .number("repeat", &Cell::repeat)
      .number("batch", &Cell::batch)
      .number("places", &Cell::places);
}

template <auto kSeconds>
std::optional<double> published(const Cell& cell) {
  const auto* found = cell.way == "ddp" ? nullptr : find_published(cell, cell.places);
  return found == nullptr ? std::nullopt : std::optional<double>(found->*kSeconds);
}

page::Table epoch_table(const Cells& cells) {
  return table_of("epochs", "Seconds an epoch, here and published")
      .name("way", &Cell::way)
      .number("first [s]", kFirstEpoch)
      .estimate("second [s]", "interval [s]", kSecondEpoch)
      .number("published first", published<&PublishedEpochs::first_seconds>)
      .number("published second", published<&PublishedEpochs::second_seconds>)
      .note(kSecondEpoch)
      .notes({"batch is that of each place; medians over the rounds, intervals as explained in the "
              "conclusion",
          oversubscribed_note(any_oversubscribed(cells)),
          least_epoch_share(cells) < 1 ? "extrapolated: epochs were cut to that part; the second "
                                         "epoch follows its rate, the first also has what its "
                                         "start took longer"
                                       : "",
          "interval: of the second epoch; published: Python PyTorch's DataParallel on NVIDIA Tesla "
          "K80s, 2 virtual CPUs, MNIST"})
      .notes(whole_reasons(results_of(cells)))
      .of(cells);
}

std::string speed_up_note(const Cell& cell) {
  const Cell* one = sibling(cell, 1, "serial");
  const bool lacks_one = cell.result.reason.empty() && !speed_up(cell) && one != nullptr;
  return lacks_one ? "one place: " + note_of(*one) : note_of(cell);
}

std::vector<page::Table> tables(const Cells& cells) {
  return {epoch_table(cells),
      table_of("speed-up", "How many times as fast as one place")
          .name("way", &Cell::way)
          .estimate("speed-up", "interval", speed_up, ratio_text)
          .number("efficiency", efficiency, percent_text)
          .number("published", published_speed_up, ratio_text)
          .name("note", speed_up_note)
          .notes({"of the second epoch; efficiency: speed-up / places"})
          .of(select(cells, [](const Cell& cell) { return cell.places > 1; })),
      dp_beside_ddp(
          table_of("dp-or-ddp", kDpOrDdp), "s", kSecondEpoch, seconds_text, ddp_of, note_of)
          .notes({"seconds of the second epoch; one is faster where the whole interval lies on its "
                  "side of 1"})
          .of(select(cells, is_dp_beside_ddp)),
      table_of("learning", "What was learned in two epochs")
          .name("way", &Cell::way)
          .number("train loss", "train_loss", decimals<4>)
          .number("test accuracy", "test_accuracy", decimals<4>)
          .number("images/s", "samples_per_s", decimals<0>)
          .note(kSecondEpoch)
          .notes({"train loss and images/s are those of the second epoch; where epochs were cut, "
                  "fewer images were learned from, and the large net is not tested"})
          .of(cells)};
}

// Figures of each net and number of repeats: what one picture can hold.

struct Panel {
  std::string model;
  int repeat;
  Cells cells;

  std::set<int> batches() const {
    std::set<int> batches;
    for (const Cell& cell : cells) batches.insert(cell.batch);
    return batches;
  }

  Figure figure(const std::string& what, const std::string& title, const std::string& y) const {
    return {.id = concat("data-parallel-", what, "-", model, "-r", repeat),
        .title = concat(model, repeat == 1 ? "" : concat(", set x ", repeat), ": ", title),
        .x = {.label = "places"},
        .y = {.label = y}};
  }

  // What a reader must know who sees nothing but the picture.
  std::string note(const std::string& beginning = "") const {
    return concat(beginning, medians_note(most_rounds(cells, kSecondEpoch)),
        oversubscribed_from(cells, &Cell::places, "places"),
        extrapolated_text(least_epoch_share(cells)));
  }
};

std::vector<Panel> panels(const Cells& cells) {
  std::vector<Panel> all;
  for (const Cell& cell : cells) {
    auto found = std::ranges::find_if(all, [&](const Panel& panel) {
      return panel.model == cell.model && panel.repeat == cell.repeat;
    });
    if (found == all.end()) found = all.insert(found, Panel{cell.model, cell.repeat, {}});
    found->cells.push_back(cell);
  }
  return all;
}

std::string series_name(const std::string& what, int batch) {
  return concat(what, ", batch ", batch);
}

Figure epoch_figure(const Panel& panel, bool second) {
  const std::string which = second ? "second" : "first";
  Figure figure =
      panel.figure(which + "-epoch", "the " + which + " epoch over places", which + " epoch [s]");
  for (const int batch : panel.batches()) {
    for (const std::string way : kWays) {
      const auto shown = select(panel.cells, [&](const Cell& cell) {
        return cell.batch == batch && (cell.way == way || cell.places == 1);
      });
      add_if_any(
          figure, series_of(series_name(way, batch), Style::kLine, shown, [&](const Cell* cell) {
            return point_of(cell->places, cell->estimate(second ? kSecondEpoch : kFirstEpoch));
          }));
    }
  }
  const std::size_t here = figure.series.size();
  for (const int batch : panel.batches()) {
    const auto series = series_of(series_name("published", batch), Style::kDashed,
        std::vector{1, 2, 4}, [&](int places) -> std::optional<plot::Point> {
          const auto* found =
              data_parallel::find_published(panel.model, panel.repeat, batch, places);
          if (found == nullptr) return std::nullopt;
          return point_of(places, second ? found->second_seconds : found->first_seconds);
        });
    // A line needs two points.
    if (series.points.size() > 1) figure.series.push_back(series);
  }
  const bool published = figure.series.size() > here;
  figure.note = panel.note(published ? "Published: DataParallel on Tesla K80 GPUs. " : "");
  return figure;
}

Figure speed_up_figure(const Panel& panel) {
  Figure figure = panel.figure(
      "speed-up", "how many times as fast as one place", "speed-up of the second epoch");
  for (const int batch : panel.batches()) {
    for (const std::string way : kWays) {
      const auto shown = select(
          panel.cells, [&](const Cell& cell) { return cell.batch == batch && cell.way == way; });
      auto series = series_of(series_name(way, batch), Style::kLine, shown,
          [&](const Cell* cell) { return point_of(cell->places, speed_up(*cell)); });
      if (!series.points.empty()) series.points.insert(series.points.begin(), plot::Point{1, 1});
      add_if_any(figure, series);
    }
  }
  double most = 1;
  for (const Cell& cell : panel.cells) {
    const auto published = published_speed_up(cell);
    most = std::max(most, static_cast<double>(cell.places));
    if (!published) continue;
    figure.series.push_back({series_name("published", cell.batch),
        {{1, 1}, {static_cast<double>(cell.places), *published}}, Style::kDashed});
  }
  if (most > 1)
    figure.series.push_back({"as many as places", {{1, 1}, {most, most}}, Style::kDashed});
  figure.note = panel.note();
  return figure;
}

Figure choice_figure(const Panel& panel) {
  const Figure form = panel.figure("dp-or-ddp", kDpOrDdp, "second epoch [s]");
  const auto category = [](const Cell& dp) {
    return concat(dp.batch, " x ", dp.places, oversubscribed_mark(dp.result));
  };
  return BarsOf<Cell>(form.id, form.title, "batch on each place x places", form.y.label, category)
      .bars("dp", kSecondEpoch)
      .bars("ddp", [](const Cell& dp) { return ddp_of(dp)->estimate(kSecondEpoch); })
      .of(select(panel.cells, is_dp_beside_ddp), panel.note());
}

std::vector<Figure> figures(const Cells& cells) {
  std::vector<Figure> all;
  for (const Panel& panel : panels(cells)) {
    for (const bool second : {false, true}) all.push_back(epoch_figure(panel, second));
    all.push_back(speed_up_figure(panel));
    all.push_back(choice_figure(panel));
  }
  return all;
}

}  // namespace

StudyCell cell_of(const Point& point, const StudyOptions& options) {
  const int cores = cores_a_place(options.cores);
  return {.id = id_of(point),
      .settings = {{"model", point.model}, {"repeat", concat(point.repeat)},
          {"batch", concat(point.batch)}, {"places", concat(point.places)}, {"way", point.way}},
      .command = command_of(point, options),
      .places = point.places,
      // Each place has the same number of cores: one place must not have those of four.
      .cores = std::min(options.cores, point.places * cores),
      .environment = threads(cores),
      .rounds = rounds_of(point, options)};
}

SampleValues values_of(const std::filesystem::path& run, std::int64_t images) {
  const std::string file = (run / "summary.json").string();
  const SummaryFacts facts = read_run_summary(run);
  const EpochFacts& first = epoch(facts, 1, file);
  const EpochFacts& second = epoch(facts, 2, file);
  const auto samples = static_cast<double>(*second.samples);
  // Ranks repeat some samples to have equal shares, so a whole epoch may have a few more.
  const double share = std::min(1.0, samples / static_cast<double>(images));
  const double second_seconds = *second.train_seconds / share;
  const double starting = *first.train_seconds - *second.train_seconds;
  return {{"epoch_share", share}, {kFirstEpoch, second_seconds + starting},
      {kSecondEpoch, second_seconds}, {"samples_per_s", samples / *second.train_seconds},
      {"train_loss", or_nan(second.train_loss)}, {"test_accuracy", or_nan(facts.test.top1)}};
}

Study make_study(const StudyOptions& options) {
  return StudyOf<Point>{.name = "data-parallel",
      .title = "Data parallel: MNIST's two nets over places",
      .question =
          "Does a second, a fourth place make an epoch shorter, and which way of spreading it is "
          "faster: DataParallel or DistributedDataParallel?",
      .rounds = options.rounds_or(3),
      .limit_seconds = options.full ? kFullLimit : options.work * kQuickLimit,
      .grid = grid(options),
      .cell = [options](const Point& point) { return cell_of(point, options); },
      .values =
          [data = training_set(options)](const Point& point, const std::filesystem::path& run) {
            return values_of(run, training_images(data) * point.repeat);
          },
      .conclusion = conclusion,
      .tables = tables,
      .figures = figures,
      .sample_columns = {{kFirstEpoch, "first epoch [s]"}, {kSecondEpoch, "second epoch [s]"}},
      .device = options.device}
      .make();
}

void prepare(const StudyOptions& options, const std::filesystem::path&) {
  training_images(training_set(options));  // says what is missing
}

const PublishedEpochs* find_published(const std::string& model, int repeat, int batch, int places) {
  // Rounded to a millisecond. The study's notebook names the model of a line by the order of its
  // loop: small before large.
  static const std::vector<PublishedEpochs> kEpochs{{kSmall, 1, 128, 1, 9.390, 9.452},
      {kLarge, 1, 128, 1, 26.721, 26.691}, {kSmall, 1, 256, 1, 8.530, 8.714},
      {kLarge, 1, 256, 1, 24.031, 23.861}, {kSmall, 1, 512, 1, 8.180, 8.380},
      {kLarge, 1, 512, 1, 23.048, 22.975}, {kSmall, 4, 128, 1, 37.702, 37.855},
      {kSmall, 1, 128, 2, 10.923, 8.288}, {kLarge, 1, 128, 2, 20.003, 19.970},
      {kSmall, 1, 256, 2, 7.675, {}}};
  return first_where(kEpochs, [&](const PublishedEpochs& each) {
    return each.model == model && each.repeat == repeat && each.batch == batch &&
           each.places == places;
  });
}

}  // namespace lockstep::bench::data_parallel
