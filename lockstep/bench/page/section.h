#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/page/table.h"
#include "lockstep/bench/plot/figure.h"

namespace lockstep::bench::page {

/// The answer to a study's question, and what a reader should know beside it.
struct Conclusion {
  std::string answer;                     ///< plain: which way paid, by how much, how sure
  std::vector<std::string> remarks = {};  ///< figures behind the answer, and its limits
};

/// The report of one study: its question, its answer, and the evidence.
struct Section {
  std::string title;
  std::string question;  ///< one sentence
  Conclusion conclusion = {};
  std::vector<Table> tables = {};
  std::vector<plot::Figure> figures = {};
};

}  // namespace lockstep::bench::page
