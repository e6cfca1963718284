#include <algorithm>

#include "bench/studies/data_parallel/study.h"
#include "bench/study/run_files.h"
#include "bench/study/train_command.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::data_parallel {
namespace {

constexpr int kMostPlaces = 4;
// What an epoch of the quick grid is cut down to: about a second of one core's work.
constexpr int kQuickImagesSmall = 15360;
constexpr int kQuickImagesLarge = 512;
constexpr int kImages = 60000;
constexpr double kQuickLimit = 300;           // seconds; a sample takes about five
constexpr double kFullLimit = 6.0 * 60 * 60;  // the largest set on one slow core
constexpr const char* kSmall = "mnist-small";
constexpr const char* kLarge = "mnist-large";

// One place is the same for both ways, so it is measured once.
std::vector<Point> with_places(const Point& point, int most_places) {
  std::vector<Point> points{point};
  for (int places = 2; places <= most_places; places *= 2) {
    for (const char* way : {"dp", "ddp"}) {
      points.push_back(point);
      points.back().places = places;
      points.back().way = way;
    }
  }
  return points;
}

void add(std::vector<Point>& grid, const Point& point, int most_places, int images) {
  for (Point each : with_places(point, most_places)) {
    if (images < kImages) each.steps = std::max(1, images / (each.batch * each.places));
    grid.push_back(each);
  }
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

}  // namespace

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
      .rounds = rounds_of(point, options),
      .not_measurable = ""};
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

const Cell* sibling(const Cells& cells, const Cell& cell, int places, const std::string& way) {
  return first_where(cells, [&](const Cell& each) {
    return each.model == cell.model && each.repeat == cell.repeat && each.batch == cell.batch &&
           each.places == places && each.way == way;
  });
}

std::optional<Estimate> speed_up(const Cells& cells, const Cell& cell) {
  if (cell.places == 1) return std::nullopt;
  return ratio_of(sibling(cells, cell, 1, "serial"), &cell, kSecondEpoch);
}

std::optional<Estimate> dp_over_ddp(const Cells& cells, const Cell& cell) {
  return ratio_of(sibling(cells, cell, cell.places, "dp"), sibling(cells, cell, cell.places, "ddp"),
      kSecondEpoch);
}

std::optional<double> published_speed_up(const Cell& cell) {
  if (cell.way != "dp") return std::nullopt;
  const auto* one = find_published(cell.model, cell.repeat, cell.batch, 1);
  const auto* these = find_published(cell.model, cell.repeat, cell.batch, cell.places);
  const bool known =
      one != nullptr && these != nullptr && one->second_seconds && these->second_seconds;
  if (!known) return std::nullopt;
  return *one->second_seconds / *these->second_seconds;
}

}  // namespace lockstep::bench::data_parallel
