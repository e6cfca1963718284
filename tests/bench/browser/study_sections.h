#pragma once

#include <vector>

#include "lockstep/report/page/page.h"

namespace lockstep::bench::testing {

/// Makes what each study reports of samples that were made up.
std::vector<page::Section> study_sections();

}  // namespace lockstep::bench::testing
