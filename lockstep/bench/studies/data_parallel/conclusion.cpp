#include "lockstep/bench/studies/data_parallel/conclusion.h"

#include <algorithm>
#include <optional>

#include "lockstep/bench/studies/conclusion_text.h"
#include "lockstep/bench/studies/data_parallel/published_epochs.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/sureness.h"
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
};

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
    const std::vector<EpochCell>& cells, const std::string& model, int places,
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

// `1.60 times as fast as one place (surely faster in 3 of 3 cells)`.
std::string paid_text(const char* way, const Ratios& ratios) {
  if (ratios.all.empty()) return concat(way, " has no number");
  const std::string text =
      concat(way, " is ", range_text(ratios.all), " times as fast as one place");
  if (!has_intervals(ratios.all)) return text;
  const std::string of_all = concat(" of ", ratios.all.size());
  if (ratios.above + ratios.below == 0) return concat(text, " (told apart in 0", of_all, ")");
  std::string told;
  if (ratios.above > 0) told = concat(sure(ratios.all, "faster"), " in ", ratios.above, of_all);
  if (ratios.below > 0) {
    told +=
        concat(told.empty() ? "" : ", ", sure(ratios.all, "slower"), " in ", ratios.below, of_all);
  }
  return concat(text, " (", told, ")");
}

std::string advice(const Ratios& ratios) {
  if (ratios.above > 0 && ratios.below == 0) return ": take ddp";
  if (ratios.below > 0 && ratios.above == 0) return ": take dp";
  return ratios.all.empty() ? "" : "; neither is told to be the quicker";
}

std::string answer_of(const std::vector<EpochCell>& cells, const std::string& model) {
  const int places = most_fair_places(cells, model);
  if (places == 1) {
    return concat(model, ": no cell with several places has a number and cores of its own.");
  }
  return concat(
      model, " on ", places, " places: ", paid_text("ddp", speed_ups(cells, model, places, "ddp")),
      "; ", paid_text("dp", speed_ups(cells, model, places, "dp")),
      advice(of_both(cells, model, places)), ".");
}

std::string about_choice(const std::vector<EpochCell>& cells, const std::string& model) {
  const Ratios ratios = of_both(cells, model, most_fair_places(cells, model));
  if (ratios.all.empty()) return "";
  return concat(
      model, ": an epoch of dp took ", range_text(ratios.all),
      " times as long as one of ddp; told apart in ", ratios.above + ratios.below, " of ",
      ratios.all.size(), ratios.all.size() == 1 ? " cell." : " cells.");
}

std::string how_sure(const std::vector<EpochCell>& cells) {
  Ratios ratios;
  for (const EpochCell& cell : cells) {
    if (cell.is_fair()) ratios.add(speed_up(cells, cell));
  }
  return about_sureness(ratios.all);
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
  return list.empty() ? "" : concat("Epoch times are extrapolated: ", list, " of an epoch.");
}

std::string about_published(const std::vector<EpochCell>& cells) {
  std::string list;
  for (const EpochCell& cell : cells) {
    const auto published = cell.way == "dp" ? published_speed_up(cell) : std::nullopt;
    if (!published) continue;
    list += concat(
        list.empty() ? "" : ", ", ratio_text(*published), " (", cell.model, ", ", cell.places,
        " GPUs, batch ", cell.batch, ")");
  }
  return list.empty() ? "" : concat("Published speed-ups of dp on Tesla K80s: ", list, ".");
}

}  // namespace

page::Conclusion epoch_conclusion(const std::vector<EpochCell>& cells) {
  if (cells.empty()) return {.answer = "The study has no cells."};
  std::vector<std::string> answers, remarks;
  for (const std::string& model : models_of(cells)) {
    answers.push_back(answer_of(cells, model));
    remarks.push_back(about_choice(cells, model));
  }
  for (const auto& remark :
       {how_sure(cells), about_places(cells), about_extrapolation(cells),
        about_missing(count_missing(cells), cells.size()), about_published(cells)}) {
    remarks.push_back(remark);
  }
  return {.answer = in_one(answers), .remarks = said(remarks)};
}

}  // namespace lockstep::bench
