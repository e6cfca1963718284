#include "tests/bench/browser/study_sections.h"
#include "tests/bench/studies/ddp_scaling/made_scaling.h"

namespace lockstep::bench::testing {

page::Section made_ddp_scaling_section() {
  const Study study = made_scaling_study(2);
  return study.tell(study, made_scaling_rounds(study, usual_scaling()));
}

}  // namespace lockstep::bench::testing
