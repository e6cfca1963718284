// A rank that makes five steps, and then what its arguments say, if it is of the first attempt:
// hang_probe spin 1: rank 1 computes for ever, the others wait for it

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include <torch/types.h>

#include "lockstep/comm/rendezvous.h"
#include "lockstep/core/environment.h"
#include "lockstep/liveness/own_slot.h"
#include "lockstep/liveness/progress_page.h"

namespace {

[[gnu::noinline]] void spin_for_ever() {
  std::atomic<std::uint64_t> turns{0};
  while (true) turns.fetch_add(1);
}

// Longer than any timeout of the tests; only a part of it between two signs of life.
void evaluate(bool gives_signs) {
  for (int batch = 0; batch < 50; ++batch) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (gives_signs) lockstep::sign_of_life();
  }
}

void act(const std::string& what, const lockstep::ProcessGroup& world) {
  if (what == "receive") world.recv(torch::ones({4}), 0).wait();  // what nobody sends
  if (what == "spin") spin_for_ever();
  if (what == "stop") std::raise(SIGSTOP);
  if (what == "evaluate") evaluate(true);
  if (what == "sleep") evaluate(false);
}

}  // namespace

int main(int count, char** values) {
  auto page = lockstep::ProgressPage::from_environment();
  const auto world = lockstep::init_process_group();
  if (!page || count != 3) return 2;
  const torch::Tensor sum = torch::ones({4});
  for (int step = 1; step <= 5; ++step) {
    world.all_reduce(sum).wait();
    page->report(step);
  }
  const bool is_first = lockstep::environment("TORCHELASTIC_RESTART_COUNT").value_or("0") == "0";
  if (is_first && world.rank() == std::atoi(values[2])) act(values[1], world);
  world.all_reduce(sum).wait();
  page->report(6);
  std::cout << "rank " << world.rank() << " is done" << std::endl;
  return 0;
}
