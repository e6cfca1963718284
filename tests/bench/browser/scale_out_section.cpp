#include "tests/bench/browser/study_sections.h"
#include "tests/bench/studies/scale_out/made_nodes.h"

namespace lockstep::bench::testing {

page::Section made_scale_out_section() {
  const Study study = made_scale_out();
  return study.tell(study, made_node_rounds(study, 2, 2.4));
}

}  // namespace lockstep::bench::testing
