#include <cmath>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/statistics/load_meter.h"

namespace lockstep::bench {
namespace {

//                      user nice system idle iowait irq softirq steal guest guest_nice
constexpr char kStat[] =
    "cpu  900 9 9 900 9 9 9 9 9 9\n"
    "cpu0 100 20 30 1000 400 5 6 7 50 10\n"
    "cpu1 1 0 0 0 0 0 0 0 0 0\n"
    "cpu10 2 2 2 0 0 2 2 2 0 0\n"
    "cpu11 3 3\n"
    "intr 12345\n";

TEST(BusyTicks, AddsWorkOfTheCores) {
  EXPECT_EQ(busy_ticks(kStat, {0}), 168) << "neither idle nor waiting, a guest's time once";
  EXPECT_EQ(busy_ticks(kStat, {10, 0, 1}), 181);
}

TEST(BusyTicks, KnowsNothingOfCoresWithoutNumbers) {
  EXPECT_TRUE(std::isnan(busy_ticks(kStat, {0, 2})));
  EXPECT_TRUE(std::isnan(busy_ticks(kStat, {11})));
  EXPECT_TRUE(std::isnan(busy_ticks("", {0})));
  EXPECT_TRUE(std::isnan(busy_ticks(kStat, {})));
}

TEST(InterruptTicks, AddsThoseOfAllCores) {
  EXPECT_EQ(interrupt_ticks("cpu  1 2 4 8 16 32 64 128 0 0\ncpu0 0 0 0 0 0 7 7 0 0 0\n"), 96);
  EXPECT_EQ(interrupt_ticks("cpu  1 2 4\n"), 0);
  EXPECT_EQ(interrupt_ticks(""), 0);
}

TEST(CpuUseTest, OthersUsedWhatWeDidNot) {
  const CpuUse use = cpu_use(10, 15, 9, 2);
  EXPECT_EQ(use.seconds, 10);
  EXPECT_EQ(use.own_cpu, 9);
  EXPECT_EQ(use.other_cpu, 6);
  EXPECT_DOUBLE_EQ(use.other_share, 0.3);
  EXPECT_EQ(cpu_use(10, 8.9, 9, 2).other_cpu, 0) << "coarse ticks";
  EXPECT_EQ(cpu_use(1, 30, 0, 2).other_share, 1) << "never more than there is";
}

TEST(CpuUseTest, CountersThatStandStillTellNothing) {
  EXPECT_TRUE(std::isnan(cpu_use(10, 0, 9, 2).other_share));
  EXPECT_TRUE(std::isnan(cpu_use(10, std::nan(""), 0, 2).other_share));
  EXPECT_TRUE(std::isnan(cpu_use(0, 1, 0, 2).other_share)) << "no time has passed";
  EXPECT_EQ(cpu_use(10, 0, 0.01, 2).other_share, 0) << "nobody did anything";
}

TEST(LoadMeterTest, CountsChildrenAsOwn) {
  const LoadMeter meter;
  const pid_t child = ::fork();
  if (child == 0) {
    calibrate();
    ::_exit(0);
  }
  rusage of_child{};
  ::wait4(child, nullptr, 0, &of_child);
  const double least = static_cast<double>(of_child.ru_utime.tv_sec) +
                       1e-6 * static_cast<double>(of_child.ru_utime.tv_usec);
  EXPECT_GT(least, 0);
  const CpuUse use = meter.read();
  EXPECT_GE(use.own_cpu, least);
  EXPECT_GT(use.seconds, 0);
  EXPECT_FALSE(use.other_share < 0 || use.other_share > 1);
}

TEST(Calibrate, TakesTimeThatNoCompilerSaves) {
  EXPECT_GT(calibrate(), 1e-4) << "twelve million steps, each waiting for the one before";
}

TEST(Oversubscribed, MeansMorePlacesThanCores) {
  EXPECT_FALSE(oversubscribed(2, 2));
  EXPECT_TRUE(oversubscribed(3, 2));
}

}  // namespace
}  // namespace lockstep::bench
