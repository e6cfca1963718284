#include "lockstep/bench/studies/data_parallel/conclusion.h"

#include <algorithm>
#include <optional>

#include "lockstep/bench/studies/data_parallel/published_epochs.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

/// Is a set of ratios of one kind.
struct Ratios {
  std::vector<Estimate> all;
  int above = 0;  ///< whose whole interval lies above 1
  int below = 0;

  void add(const std::optional<Estimate>& ratio) {
    if (!ratio) return;
    all.push_back(*ratio);
    above += above_one(ratio) ? 1 : 0;
    below += below_one(ratio) ? 1 : 0;
  }

  /// Tells whether any has an interval.
  bool has_intervals() const {
    return std::any_of(all.begin(), all.end(), [](const Estimate& each) { return each.count > 1; });
  }

  double least() const {
    double value = all.front().median;
    for (const Estimate& each : all) value = std::min(value, each.median);
    return value;
  }

  double most() const {
    double value = all.front().median;
    for (const Estimate& each : all) value = std::max(value, each.median);
    return value;
  }
};

std::string range_text(double low, double high, std::string (*text)(double)) {
  const std::string first = text(low), last = text(high);
  return first == last ? first : first + " to " + last;
}

std::vector<std::string> models_of(const std::vector<EpochCell>& cells) {
  std::vector<std::string> models;
  for (const EpochCell& cell : cells) {
    if (std::find(models.begin(), models.end(), cell.model) == models.end())
      models.push_back(cell.model);
  }
  return models;
}

int most_fair_places(const std::vector<EpochCell>& cells, const std::string& model) {
  int places = 1;
  for (const EpochCell& cell : cells) {
    if (cell.model == model && cell.is_fair() && speed_up(cells, cell))
      places = std::max(places, cell.places);
  }
  return places;
}

Ratios speed_ups(
    const std::vector<EpochCell>& cells,
    const std::string& model,
    int places,
    const std::string& way) {
  Ratios ratios;
  for (const EpochCell& cell : cells) {
    const bool counts = cell.model == model && cell.places == places && cell.way == way;
    if (counts && cell.is_fair()) ratios.add(speed_up(cells, cell));
  }
  return ratios;
}

Ratios of_both(const std::vector<EpochCell>& cells, const std::string& model, int places) {
  Ratios ratios;
  for (const EpochCell& cell : cells) {
    const bool counts = cell.model == model && cell.places == places && cell.way == "dp";
    if (counts && cell.is_fair()) ratios.add(dp_over_ddp(cells, cell));
  }
  return ratios;
}

std::string paid_text(const char* way, const Ratios& ratios) {
  if (ratios.all.empty()) return concat(way, " has no number");
  const std::string range = range_text(ratios.least(), ratios.most(), ratio_text);
  const std::string text = concat(way, " is ", range, " times as fast as one place");
  if (!ratios.has_intervals()) return text;
  return concat(
      text,
      ": surely faster in ",
      ratios.above,
      ", surely slower in ",
      ratios.below,
      " of ",
      ratios.all.size(),
      ratios.all.size() == 1 ? " cell" : " cells");
}

std::string choice_text(const Ratios& ratios) {
  if (ratios.all.empty()) return "";
  const std::string range = range_text(ratios.least(), ratios.most(), ratio_text);
  const std::string took = concat("An epoch of dp took ", range, " times as long as one of ddp");
  if (!ratios.has_intervals()) return took + ". ";
  const std::string counts = concat(
      took,
      ": ddp was surely the quicker in ",
      ratios.above,
      ", dp in ",
      ratios.below,
      " of ",
      ratios.all.size(),
      ". ");
  if (ratios.above > 0 && ratios.below == 0) return counts + "Take ddp. ";
  if (ratios.below > 0 && ratios.above == 0) return counts + "Take dp. ";
  return counts + "Neither is surely the quicker. ";
}

std::string of_model(const std::vector<EpochCell>& cells, const std::string& model) {
  const int places = most_fair_places(cells, model);
  if (places == 1) {
    return concat(model, ": no cell with several places has a number and cores of its own. ");
  }
  return concat(
      model,
      " on ",
      places,
      " places: ",
      paid_text("ddp", speed_ups(cells, model, places, "ddp")),
      "; ",
      paid_text("dp", speed_ups(cells, model, places, "dp")),
      ". ",
      choice_text(of_both(cells, model, places)));
}

std::string sureness(const std::vector<EpochCell>& cells) {
  Ratios ratios;
  for (const EpochCell& cell : cells) {
    if (cell.is_fair()) ratios.add(speed_up(cells, cell));
  }
  if (ratios.all.empty()) return "";
  const auto by_count = [](const Estimate& a, const Estimate& b) { return a.count < b.count; };
  const auto [few, many] = std::minmax_element(ratios.all.begin(), ratios.all.end(), by_count);
  const std::string rounds =
      few->count == many->count ? concat(few->count) : concat(few->count, " to ", many->count);
  if (many->count < 2) return "One round was measured: there is no interval, and nothing is sure. ";
  return concat(
      "Sure means that the whole interval over ",
      rounds,
      " rounds lies on one side of 1; it holds the true ratio with a probability of ",
      range_text(few->confidence, many->confidence, percent_text),
      ". ");
}

std::string about_places(const std::vector<EpochCell>& cells) {
  const int cores = cells.front().result.cell.cores / cells.front().places;
  std::string text = concat("A place is ", cores, cores == 1 ? " core" : " cores", " here. ");
  int over = 0;
  for (const EpochCell& cell : cells) {
    const bool less = over == 0 || cell.places < over;
    if (cell.result.oversubscribed && less) over = cell.places;
  }
  if (over == 0) return text;
  return concat(
      text,
      over,
      " places are more than there are cores: such cells are marked oversubscribed, are no fair "
      "test and no part of this. ");
}

std::string about_extrapolation(const std::vector<EpochCell>& cells) {
  std::string list;
  for (const std::string& model : models_of(cells)) {
    double share = 1;
    for (const EpochCell& cell : cells) {
      if (cell.model == model) share = std::min(share, cell.epoch_share());
    }
    if (share >= 1) continue;
    list += concat(list.empty() ? "" : ", ", model, " from ", percent_text(share));
  }
  return list.empty() ? "" : concat("Epoch times are extrapolated: ", list, " of an epoch. ");
}

std::string about_missing(const std::vector<EpochCell>& cells) {
  const auto missing = std::count_if(cells.begin(), cells.end(), [](const EpochCell& cell) {
    return !cell.result.reason.empty();
  });
  if (missing == 0) return "";
  return concat(missing, " of ", cells.size(), " cells have no number: the tables say why. ");
}

std::string about_published(const std::vector<EpochCell>& cells) {
  std::string list;
  for (const EpochCell& cell : cells) {
    const auto published = cell.way == "dp" ? published_speed_up(cell) : std::nullopt;
    if (!published) continue;
    list += concat(
        list.empty() ? "" : ", ",
        ratio_text(*published),
        " (",
        cell.model,
        ", ",
        cell.places,
        " GPUs, batch ",
        cell.batch,
        ")");
  }
  return list.empty() ? "" : concat("Published speed-ups of dp on Tesla K80s: ", list, ".");
}

}  // namespace

std::string epoch_conclusion(const std::vector<EpochCell>& cells) {
  if (cells.empty()) return "The study has no cells.";
  std::string text;
  for (const std::string& model : models_of(cells)) text += of_model(cells, model);
  text += sureness(cells) + about_places(cells) + about_extrapolation(cells) +
          about_missing(cells) + about_published(cells);
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace lockstep::bench
