#include <algorithm>

#include "bench/statistics/estimate_text.h"
#include "bench/studies/data_parallel/study.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench::data_parallel {
namespace {

std::vector<std::string> models_of(const Cells& cells) {
  std::vector<std::string> models;
  for (const Cell& cell : cells) {
    if (std::find(models.begin(), models.end(), cell.model) == models.end())
      models.push_back(cell.model);
  }
  return models;
}

int most_fair_places(const Cells& cells, const std::string& model) {
  int places = 1;
  for (const Cell& cell : cells) {
    if (cell.model == model && cell.is_fair() && speed_up(cells, cell))
      places = std::max(places, cell.places);
  }
  return places;
}

// The verdict on the cells of a way; with `dp_over_ddp` on the choice between both.
Verdict verdict_of(const Cells& cells, const std::string& model, const std::string& way,
    std::optional<Estimate> (*ratio)(const Cells&, const Cell&)) {
  const int places = most_fair_places(cells, model);
  return verdict_of_fair(cells, [&](const Cell& cell) {
    const bool counts = cell.model == model && cell.places == places && cell.way == way;
    return counts ? ratio(cells, cell) : std::nullopt;
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

}  // namespace

page::Conclusion conclusion(const Cells& cells) {
  if (cells.empty()) return {.answer = "The study has no cells."};
  std::vector<std::string> answers, remarks;
  for (const std::string& model : models_of(cells)) {
    answers.push_back(answer_of(cells, model));
    remarks.push_back(about_choice(cells, model));
  }
  const auto faster = [&](const Cell& cell) { return speed_up(cells, cell); };
  for (const auto& remark : {verdict_of_fair(cells, faster).explained(), about_places(cells),
           about_extrapolation(cells), about_missing(results_of(cells)), about_published(cells)}) {
    remarks.push_back(remark);
  }
  return {.answer = in_one(answers), .remarks = said(remarks)};
}

}  // namespace lockstep::bench::data_parallel
