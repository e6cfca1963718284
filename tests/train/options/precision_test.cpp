#include "lockstep/train/options/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr PrecisionRequest kAuto{.is_auto = true, .is_given = true, .precision = Precision::k32};
constexpr PrecisionRequest kNothing{};

TEST(Precision, ProcessorsAreKnownByTheirFeatures) {
  EXPECT_TRUE(computes_bf16("flags : fpu avx512f avx512_bf16 amx_tile"));
  EXPECT_TRUE(computes_bf16("amx_bf16"));
  EXPECT_FALSE(computes_bf16("flags : fpu avx2 avx512f avx512_bf16x"));
  EXPECT_FALSE(computes_bf16(""));
  ::setenv("LOCKSTEP_TEST_CPU_FEATURES", "avx2", 1);
  EXPECT_FALSE(this_processor_computes_bf16());
  ::setenv("LOCKSTEP_TEST_CPU_FEATURES", "avx2 amx_bf16", 1);
  EXPECT_TRUE(this_processor_computes_bf16());
  ::unsetenv("LOCKSTEP_TEST_CPU_FEATURES");
}

TEST(Precision, AutoTakesBf16WhereAllProcessorsHaveIt) {
  EXPECT_EQ(choose_precision(kAuto, {true}, {}).precision, Precision::kBf16Mixed);
  EXPECT_EQ(choose_precision(kAuto, {false}, {}).precision, Precision::k32);
  for (const bool has : {true, false}) {
    EXPECT_EQ(choose_precision(kAuto, {has}, {}).hint, "");
    EXPECT_EQ(choose_precision(kAuto, {has}, {}).warning, "");
  }
}

TEST(Precision, AutoKeepsThatOfTheSnapshot) {
  EXPECT_EQ(choose_precision(kAuto, {true}, Precision::k32).precision, Precision::k32);
  const auto slow = choose_precision(kAuto, {false}, Precision::kBf16Mixed);
  EXPECT_EQ(slow.precision, Precision::kBf16Mixed);
  EXPECT_THAT(slow.warning, HasSubstr("5 times slower"));
}

TEST(Precision, WhatIsGivenIsTaken) {
  for (const Precision given : {Precision::k32, Precision::kBf16Mixed, Precision::k16Mixed}) {
    const PrecisionRequest asked{.is_given = true, .precision = given};
    EXPECT_EQ(choose_precision(asked, {true}, {}).precision, given);
    EXPECT_EQ(choose_precision(asked, {true}, {}).hint, "");
    EXPECT_EQ(choose_precision(asked, {false}, Precision::k32).precision, given);
  }
  const PrecisionRequest bf16{.is_given = true, .precision = Precision::kBf16Mixed};
  EXPECT_EQ(choose_precision(bf16, {true}, {}).warning, "");
  EXPECT_THAT(choose_precision(bf16, {false}, {}).warning, HasSubstr("5 times slower"));
}

TEST(Precision, SaysWhereBf16WouldBeQuicker) {
  EXPECT_EQ(choose_precision(kNothing, {true}, {}).precision, Precision::k32);
  EXPECT_THAT(choose_precision(kNothing, {true}, {}).hint, HasSubstr("--precision bf16-mixed"));
  EXPECT_EQ(choose_precision(kNothing, {false}, {}).hint, "");
  EXPECT_EQ(choose_precision(kNothing, {true}, Precision::k32).hint, "")
      << "a resume cannot change";
}

TEST(Precision, Float16OnACpuIsWarnedOfButNotOnADevice) {
  const PrecisionRequest half{.is_given = true, .precision = Precision::k16Mixed};
  const Computing cpu{.is_bf16_fast = true}, device{.on_accelerators = true};
  EXPECT_THAT(choose_precision(half, cpu, {}).warning, HasSubstr("16-mixed is for GPUs"));
  EXPECT_EQ(choose_precision(half, device, {}).warning, "");
}

TEST(Precision, SpeaksOfDevicesWhereTheyCompute) {
  const Computing fast{.is_bf16_fast = true, .on_accelerators = true},
      slow{.on_accelerators = true};
  const PrecisionRequest bf16{.is_given = true, .precision = Precision::kBf16Mixed};
  EXPECT_EQ(choose_precision(kAuto, fast, {}).precision, Precision::kBf16Mixed);
  EXPECT_EQ(choose_precision(kAuto, slow, {}).precision, Precision::k32);
  EXPECT_THAT(
      choose_precision(kNothing, fast, {}).hint, HasSubstr("this device is faster in bf16"));
  EXPECT_THAT(choose_precision(bf16, slow, {}).warning, HasSubstr("a device of this run"));
  EXPECT_EQ(choose_precision(bf16, fast, {}).warning, "");
}

}  // namespace
}  // namespace lockstep
