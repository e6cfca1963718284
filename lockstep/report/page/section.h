#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/report/page/table.h"
#include "lockstep/report/plot/figure.h"
#include "lockstep/report/plot/heat_map.h"
#include "lockstep/report/plot/timeline.h"

namespace lockstep::bench::page {

/// The answer to a study's question, and what a reader should know beside it.
struct Conclusion {
  std::string answer;                     ///< plain: which way paid, by how much, how sure
  std::vector<std::string> remarks = {};  ///< figures behind the answer, and its limits
};

/// A small picture, and the lines under it.
struct Picture {
  std::vector<std::uint8_t> png;  ///< a whole file; empty: the caption alone
  std::vector<std::string> caption;
};

/// The report of one study: its question, its answer, and the evidence.
struct Section {
  std::string title;
  std::string question;  ///< one sentence
  Conclusion conclusion = {};
  std::vector<Table> tables = {};
  std::vector<plot::Figure> figures = {};
  std::vector<plot::HeatMap> heat_maps = {};  ///< only HTML shows them, as the pictures
  std::vector<plot::Timeline> timelines = {};
  std::vector<Picture> pictures = {};
};

}  // namespace lockstep::bench::page
