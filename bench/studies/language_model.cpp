#include "bench/studies/language_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "bench/studies/throughput.h"
#include "bench/study/verdict.h"
#include "lockstep/core/text.h"
#include "lockstep/data/split_mix.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench::language_model {
namespace {

namespace fs = std::filesystem;

using Cell = Measured<Point>;
using Cells = std::vector<Cell>;

constexpr const char* kSpread[] = {"ddp", "fsdp", "pp"};
constexpr int kMostPlaces = 4;
constexpr int kQuickLengths[] = {64, 256};  // the net's most
constexpr int kFullLengths[] = {256, 512, 1024};
constexpr int kQuickBatch = 8, kFullBatch = 32;  // divided by 2 to 4 places; 3 take 6
constexpr int kQuickSteps = 8, kFullSteps = 50;  // that are timed, after one
constexpr int kGpt2Words = 50257;                // whose scores are a third of GPT-2's work
constexpr double kQuickLimit = 300;              // seconds
constexpr double kFullLimit = 24 * 60 * 60;

std::vector<Point> grid(const StudyOptions& options) {
  const int places = options.full ? kMostPlaces : std::clamp(options.cores, 2, kMostPlaces);
  Point point{.batch = kQuickBatch / places * places, .steps = 1 + options.work * kQuickSteps};
  if (options.full) point = {.model = "gpt2", .batch = kFullBatch, .steps = 1 + kFullSteps};
  std::vector<Point> points;
  const std::span<const int> lengths =
      options.full ? std::span<const int>(kFullLengths) : std::span<const int>(kQuickLengths);
  for (const int length : lengths) {
    point.length = length;
    points.push_back(point);
    for (const char* way : kSpread) {
      Point& spread = points.emplace_back(point);
      spread.way = way;
      spread.places = places;
    }
  }
  return points;
}

// Stages are ranks, too: what is asked is the memory of a process.
Words spreading(const Point& point) {
  if (point.way != "pp") return spreading_flags(point.way, point.places);
  return words_of("--parallel", "pp", "--nproc-per-node", point.places, "--max-restarts", 0,
      "--chunks", 2 * point.places);
}

std::string named_data(const StudyOptions& options) {
  return options.data_of({"text", "tokens"}, "");
}

Words data_flags(const StudyOptions& options) {
  const std::string named = named_data(options);
  Words words =
      words_of("--data", named.empty() ? concat("text:", kBenchFolder, "/data/text") : named);
  if (options.full) add_words(words, words_of("--num-classes", kGpt2Words));
  return words;
}

StudyCell cell_of(const Point& point, const StudyOptions& options) {
  const int cores = cores_a_place(options.cores);
  return {.id = concat(point.way, "-p", point.places, "-t", point.length, "-s", point.steps),
      .settings = {{"way", point.way}, {"places", concat(point.places)},
          {"length", concat(point.length)}, {"model", point.model}, {"batch", concat(point.batch)},
          {"steps", concat(point.steps)}},
      .command = train_command("--model", point.model, data_flags(options), "--sequence-length",
          point.length, "--batch-size", point.batch_a_rank(), "--opt", "adamw", "--lr", "1e-3",
          "--max-steps", point.steps, "--log-interval", 1, "--val-interval", "never",
          "--snapshot-interval", "never", "--progress", "none", spreading(point)),
      .places = point.places,
      .cores = std::min(options.cores, point.places * cores),
      .environment = threads(cores)};
}

// Words of a made-up language, the first of them often, as in any: a net has something to learn.
std::string drawn_text(std::uint64_t seed, std::size_t bytes) {
  constexpr int kWords = 500, kLetters = 26;
  data::SplitMix stream(seed), spelling(0);
  std::vector<std::string> words(kWords);
  for (std::string& word : words)
    for (auto left = spelling.between(2, 7); left > 0; --left)
      word += static_cast<char>('a' + spelling.between(0, kLetters - 1));
  std::string text;
  while (text.size() < bytes) {
    const auto rank = stream.between(0, stream.between(0, stream.between(0, kWords - 1)));
    text += words[static_cast<std::size_t>(rank)];
    text += stream.between(0, 9) == 0 ? ".\n" : " ";
  }
  return text;
}

// How cells compare.

// One place with sequences of this length; nullptr if there is none.
const Cell* one_place(const Cell& cell) {
  return first_where(*cell.cells,
      [&](const Cell& each) { return each.way == "serial" && each.length == cell.length; });
}

// How many times as many tokens a second as one place; nothing for that itself.
std::optional<Estimate> speed_up(const Cell& cell) {
  const Cell* one = one_place(cell);
  return one == &cell ? std::nullopt : ratio_of(&cell, one, kRate);
}

std::string about_way(const Cells& cells, const std::string& way) {
  const Verdict verdict = verdict_of_fair(cells, [&](const Cell& cell) {
    const Cell* one = one_place(cell);
    const bool is_meant = cell.way == way && one != nullptr && one->is_fair();
    return is_meant ? speed_up(cell) : std::nullopt;
  });
  if (verdict.ratios.empty())
    return way + ": no cell has a number, beside one place's, and cores of its own.";
  const std::string side = verdict.is_above()   ? verdict.sure("faster")
                           : verdict.is_below() ? verdict.sure("slower")
                                                : "not clearly faster or slower";
  return concat(way, " trains ", range_text(verdict.ratios), " times as many tokens a second as ",
      "one place: ", side, ".");
}

std::string fastest_text(const Cells& cells) {
  const auto best = largest(results_of(cells), kRate);
  if (!best) return "";
  const Cell& cell = cells[*best];
  return concat("The most tokens a second: ", seconds_text(*cell.median(kRate)), ", by ",
      cell.way == "serial" ? "one place" : cell.way, " with sequences of ", cell.length, ".");
}

// Of the longest sequences, which need the most.
std::string memory_text(const Cells& cells) {
  std::vector<std::string> parts;
  for (const Cell& cell : cells) {
    const auto bytes = cell.median(kRankMemory);
    if (cell.length == cells.back().length && bytes)
      parts.push_back(concat(cell.way, " ", mebibytes_text(*bytes)));
  }
  if (parts.empty()) return "";
  return concat(
      "Memory of a rank with sequences of ", cells.back().length, ", in MiB: ", joined(parts), ".");
}

// Ways that train alike come to the same loss, up to rounding.
bool are_alike(double loss, double other) { return std::abs(loss - other) <= 0.01 * other; }

// All that came to their end are compared with the first, which is one place's if that has any. A
// loss that is no number is like none.
std::string losses_text(const Cells& cells) {
  std::vector<double> losses;
  std::vector<std::string> ways, others;
  for (const Cell& cell : cells) {
    if (!cell.median(kRate) || cell.length != cells.back().length) continue;
    const double loss = or_nan(cell.median(kLoss));
    ways.push_back(concat(std::isnan(loss) ? "no number" : decimals<3>(loss), " by ", cell.way));
    if (!losses.empty() && !are_alike(loss, losses.front())) others.push_back(ways.back());
    losses.push_back(loss);
  }
  if (losses.empty()) return "";
  std::string text = concat("After ", cells.back().steps, " steps of these the loss is ");
  if (losses.size() == 1) return concat(text, ways.front(), ".");
  if (!others.empty())
    return concat(text, ways.front(), ", but ", joined(others), ", which is not the same.");
  const auto [least, most] = std::ranges::minmax(losses);
  const std::string low = decimals<3>(least), high = decimals<3>(most);
  return concat(text, low == high ? low : concat(low, " to ", high), ", whatever the way.");
}

page::Conclusion conclusion(const Cells& cells) {
  std::vector<std::string> answers;
  for (const char* way : kSpread) answers.push_back(about_way(cells, way));
  const Verdict all = verdict_of_fair(cells, speed_up);
  return {.answer = in_one(answers),
      .remarks = {fastest_text(cells), memory_text(cells), losses_text(cells), all.explained(),
          about_places(cells), about_missing(results_of(cells))}};
}

std::vector<page::Table> tables(const Cells& cells) {
  return {TableOf<Cell>("language-model-rates", "Tokens a second, and the memory of a rank")
              .name("way", &Cell::way)
              .number("places", &Cell::places)
              .number("length", &Cell::length)
              .estimate("tokens/s", "interval", kRate)
              .estimate("times one place", "interval", speed_up, ratio_text)
              .number("a rank [MiB]", kRankMemory, mebibytes_text)
              .number("loss", kLoss, decimals<3>)
              .note(kRate)
              .notes({concat(cells.front().model, ", ", cells.front().batch,
                          " sequences a step on all places together, ", cells.front().steps,
                          " steps, the first not timed; loss: of the last step"),
                  "a rank: peak memory of the processes, divided by their number",
                  oversubscribed_note(any_oversubscribed(cells))})
              .notes(whole_reasons(results_of(cells)))
              .of(cells)};
}

BarsOf<Cell> bars_of_ways(BarsOf<Cell> figure, const char* value, double factor = 1) {
  const auto of_way = [value](const std::string& way) {
    return [=](const Cell& cell) { return cell.way == way ? cell.estimate(value) : std::nullopt; };
  };
  figure.bars("one place", of_way("serial"), factor);
  for (const char* way : kSpread) figure.bars(way, of_way(way), factor);
  return figure;
}

std::vector<plot::Figure> figures(const Cells& cells) {
  constexpr double kMebibyte = 1 << 20;
  const auto length = [](const Cell& cell) {
    return concat(cell.length, oversubscribed_mark(cell.result));
  };
  const BarsOf<Cell> rates("language-model-rate", "Tokens a second, each way",
      "tokens of a sequence", "tokens/s", length);
  const BarsOf<Cell> memory(
      "language-model-memory", "Memory of a rank, each way", "tokens of a sequence", "MiB", length);
  const std::string note = medians_note(most_rounds(cells, kRate));
  return {bars_of_ways(rates, kRate).of(cells, note),
      bars_of_ways(memory, kRankMemory, 1 / kMebibyte).of(cells, note)};
}

}  // namespace

void prepare(const StudyOptions& options, const fs::path& output) {
  if (!named_data(options).empty()) return;
  const fs::path folder = output / "data" / "text";
  if (fs::exists(folder / "val.txt")) return;
  fs::create_directories(folder);
  constexpr std::size_t kTrained = 2 << 20, kHeldOut = 64 << 10;
  replace_file(folder / "train.txt", drawn_text(1, kTrained));
  replace_file(folder / "val.txt", drawn_text(2, kHeldOut));
}

SampleValues values_of(const Point& point, const fs::path& run) {
  const SampleValues steps = throughput::values_of(run);
  const auto lines = merged(read_metrics(run / "metrics.jsonl").lines);
  SampleValues values{{kRate, steps.at("samples_per_s") * point.length},
      {"first_step_seconds", steps.at("first_step_seconds")},
      {kLoss, or_nan(lines.back().record.scores.loss)}};
  if (const auto memory = read_run_summary(run).peak_memory_bytes)
    values[kRankMemory] = static_cast<double>(*memory) / point.places;
  return values;
}

Study make_study(const StudyOptions& options) {
  return StudyOf<Point>{.name = "language-model",
      .title = "Language model: tokens a second and memory of a rank",
      .question =
          "Which way of spreading a language model over ranks trains the most tokens a second, "
          "and how much memory does a rank need?",
      .rounds = options.rounds_or(options.full ? 3 : 2),
      .limit_seconds = options.full ? kFullLimit : options.work * kQuickLimit,
      .grid = grid(options),
      .cell = [options](const Point& point) { return cell_of(point, options); },
      .values = values_of,
      .conclusion = conclusion,
      .tables = tables,
      .figures = figures,
      .sample_columns = {{kRate, "tokens/s"}, {"first_step_seconds", "first step [s]"},
          {kRankMemory, "a rank [bytes]"}, {kLoss, "loss"}},
      .device = options.device}
      .make();
}

}  // namespace lockstep::bench::language_model
