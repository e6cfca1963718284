#include "tests/bench/browser/study_sections.h"
#include "tests/bench/studies/throughput/made_throughput.h"

namespace lockstep::bench::testing {

page::Section made_throughput_section() {
  const Study study = throughput_study({.cores = 2});
  return study.tell(study, made_rounds(study, usual_seconds()));
}

}  // namespace lockstep::bench::testing
