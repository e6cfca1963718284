#include "tests/bench/browser/study_sections.h"

#include "tests/bench/studies/collectives/made_sweeps.h"
#include "tests/bench/studies/ddp_scaling/made_scaling.h"
#include "tests/bench/studies/pipeline/made_runs.h"
#include "tests/bench/studies/scale_out/made_nodes.h"
#include "tests/bench/studies/throughput/made_throughput.h"

namespace lockstep::bench::testing {
namespace {

page::Section throughput_section() {
  const Study study = throughput::make_study({.cores = 2});
  return study.report(study, throughput::made_rounds(study, throughput::usual_seconds()));
}

page::Section ddp_scaling_section() {
  const Study study = ddp_scaling::made_scaling_study(2);
  return study.report(study, ddp_scaling::made_scaling_rounds(study, ddp_scaling::usual_scaling()));
}

// The whole grid, whose figures have the most in them.
page::Section pipeline_section() {
  const Study study = pipeline::make_study({.full = true, .cores = 2});
  const auto samples = pipeline::made_runs(study, 5,
      {{"single", 60}, {"single-both", 33}, {"mp", 62}, {"gpipe", 33}, {"1f1b", 32},
          {"interleaved", 31}, {"zero-bubble", 30}});
  return study.report(study, samples);
}

page::Section scale_out_section() {
  const Study study = scale_out::made_scale_out();
  return study.report(study, scale_out::made_node_rounds(study, 2, 2.4));
}

page::Section collectives_section() {
  Study study = collectives::make_study({.full = true, .cores = 2});
  std::erase_if(study.cells, [](const StudyCell& cell) {
    return !cell.id.starts_with("all_reduce-n2") && !cell.id.starts_with("broadcast-n4");
  });
  return study.report(study, collectives::made_sweeps(study));
}

}  // namespace

std::vector<page::Section> study_sections() {
  return {throughput_section(), ddp_scaling_section(), pipeline_section(), scale_out_section(),
      collectives_section()};
}

}  // namespace lockstep::bench::testing
