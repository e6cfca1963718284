#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/page/table.h"
#include "lockstep/bench/plot/figure.h"

namespace lockstep::bench::page {

/// Is what one study tells: its question, its answer, and what that rests on.
struct Section {
  std::string title;
  std::string question;    ///< one sentence
  std::string conclusion;  ///< plain sentences: which way paid, by how much, how sure
  std::vector<Table> tables = {};
  std::vector<plot::Figure> figures = {};
};

}  // namespace lockstep::bench::page
