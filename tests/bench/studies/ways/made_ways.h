#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/bench/studies/made_sample.h"

#include "bench/studies/ways/study.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench::testing {

/// Images a second of a cell in each of its rounds.
using RatesByCell = std::map<std::string, std::vector<double>>;

/// Makes samples with these rates, in which a tenth of the time was waiting for data and, of ddp, a
/// fifth for other ranks.
inline std::vector<Sample> made_rates(const Study& study, const RatesByCell& rates) {
  std::vector<Sample> samples;
  for (const StudyCell& cell : study.cells) {
    const auto found = rates.find(cell.id);
    if (found == rates.end()) continue;
    for (std::size_t round = 0; round < found->second.size(); ++round) {
      std::map<std::string, double> values{{ways::kRate, found->second[round]},
          {ways::kDataShare, 0.02}, {ways::kPeakMemory, 300 << 20}};
      if (cell.id.starts_with("ddp")) values[ways::kCommShare] = 0.2;
      samples.push_back(made_sample(study.name, cell, static_cast<int>(round) + 1, values));
    }
  }
  return samples;
}

}  // namespace lockstep::bench::testing
