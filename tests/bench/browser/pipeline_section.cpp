#include "lockstep/bench/studies/pipeline/pipeline.h"

#include "tests/bench/browser/study_sections.h"
#include "tests/bench/studies/pipeline/made_runs.h"

namespace lockstep::bench::testing {

// The whole grid, whose figures have the most in them.
page::Section made_pipeline_section() {
  const Study study = pipeline_study({.full = true, .cores = 2});
  const auto samples = made_runs(
      study, 5,
      {{"single", 60},
       {"single-both", 33},
       {"mp", 62},
       {"gpipe", 33},
       {"1f1b", 32},
       {"interleaved", 31},
       {"zero-bubble", 30}});
  return study.tell(study, samples);
}

}  // namespace lockstep::bench::testing
