#pragma once

#include <vector>

#include "lockstep/bench/page/section.h"

namespace lockstep::bench::testing {

/// Make what each study tells of samples that were made up.
page::Section made_throughput_section();
page::Section made_ddp_scaling_section();
page::Section made_pipeline_section();
page::Section made_scale_out_section();
page::Section made_collectives_section();

inline std::vector<page::Section> study_sections() {
  return {
      made_throughput_section(), made_ddp_scaling_section(), made_pipeline_section(),
      made_scale_out_section(),  made_collectives_section(),
  };
}

}  // namespace lockstep::bench::testing
