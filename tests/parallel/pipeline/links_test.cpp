#include "lockstep/parallel/pipeline/links.h"

#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "tests/support/busy_core.h"

namespace lockstep {
namespace {

// Note [Waits]: the stage that is awaited may need the core of the one that waits.
TEST(Exchange, APayloadIsWaitedForInSleep) {
  const testing::BusyThread busy;
  Exchange exchange;
  testing::Switches switches;
  std::thread waits([&] {
    testing::pin_to_first_core();
    switches = testing::switches_of([&] { exchange.take({}); });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  exchange.put({}, {});
  waits.join();
  EXPECT_LT(switches.voluntary, 50) << "it woke up in between";
  EXPECT_LT(switches.involuntary, 20) << "it spun";
}

}  // namespace
}  // namespace lockstep
