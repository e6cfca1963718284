#include "lockstep/bench/studies/collectives/collectives.h"

#include "tests/bench/browser/study_sections.h"
#include "tests/bench/studies/made_sweeps.h"

namespace lockstep::bench::testing {

page::Section made_collectives_section() {
  Study study = collectives_study({.full = true, .cores = 2});
  std::erase_if(study.cells, [](const StudyCell& cell) {
    return !cell.id.starts_with("all_reduce-n2") && !cell.id.starts_with("broadcast-n4");
  });
  return study.tell(study, made_sweeps(study));
}

}  // namespace lockstep::bench::testing
