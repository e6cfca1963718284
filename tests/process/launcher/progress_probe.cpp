// Reports to the launcher for a script that is a rank: progress_probe 500 a step; and that it saves
// what would be lost, until there is a file: progress_probe 0 FILE

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <thread>

#include "lockstep/liveness/own_slot.h"
#include "lockstep/liveness/progress_page.h"

int main(int count, char** values) {
  auto page = lockstep::ProgressPage::from_environment();
  if (!page || count < 2) return 1;
  const long step = std::atol(values[1]);
  if (step > 0) page->report(step);
  if (const auto seconds = page->recovery_seconds()) std::cout << "after " << *seconds << std::endl;
  if (count < 3 || lockstep::own_slot() == nullptr) return 0;
  lockstep::report_rescue(lockstep::RescueState::kUnderWay);
  std::cout << "saving" << std::endl;
  while (!std::filesystem::exists(values[2]))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::cout << "saved" << std::endl;
  lockstep::report_rescue(lockstep::RescueState::kDone);
  std::this_thread::sleep_for(std::chrono::minutes(10));  // it is ended
}
