#pragma once

#include "lockstep/report/page/page.h"
#include "lockstep/report/run/run_report.h"

namespace lockstep::bench {

/// Returns a run as a page: its facts, the table of epochs, and figures of loss and accuracy by
/// epoch, or by step where there is one epoch.
page::Page page_of_run(const RunReport& run);

/// Writes RUN/report.html, one file that needs neither network nor script. Throws std::system_error
/// if the folder is not writable.
void write_run_page(const RunReport& run);

}  // namespace lockstep::bench
