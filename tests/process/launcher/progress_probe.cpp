// Reports steps to the launcher for a script that is a rank: progress_probe 500

#include <cstdlib>
#include <iostream>

#include "lockstep/core/progress_page.h"

int main(int count, char** values) {
  auto page = lockstep::ProgressPage::from_environment();
  if (!page || count != 2) return 1;
  const long step = std::atol(values[1]);
  if (step > 0) page->report(step);
  if (const auto seconds = page->recovery_seconds()) std::cout << "after " << *seconds << std::endl;
  return 0;
}
