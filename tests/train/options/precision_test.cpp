#include "lockstep/train/options/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr PrecisionRequest kAuto{.is_auto = true, .is_given = true, .precision = Precision::k32};
constexpr PrecisionRequest kNothing{};

constexpr Computing kFast{.bf16_speed = 2}, kSlow{.bf16_speed = 1.9};

TEST(Precision, AutoTakesBf16WhereItsProductsTakeHalfTheTime) {
  EXPECT_EQ(choose_precision(kAuto, kFast, {}).precision, Precision::kBf16Mixed);
  EXPECT_EQ(choose_precision(kAuto, kSlow, {}).precision, Precision::k32);
  for (const Computing& on : {kFast, kSlow}) {
    EXPECT_EQ(choose_precision(kAuto, on, {}).hint, "");
    EXPECT_EQ(choose_precision(kAuto, on, {}).warning, "");
  }
}

TEST(Precision, AutoKeepsThatOfTheSnapshot) {
  EXPECT_EQ(choose_precision(kAuto, kFast, Precision::k32).precision, Precision::k32);
  const auto slow = choose_precision(kAuto, kSlow, Precision::kBf16Mixed);
  EXPECT_EQ(slow.precision, Precision::kBf16Mixed);
  EXPECT_THAT(slow.warning, HasSubstr("only 1.9 times as fast"));
}

TEST(Precision, WhatIsGivenIsTaken) {
  for (const Precision given : {Precision::k32, Precision::kBf16Mixed, Precision::k16Mixed}) {
    const PrecisionRequest asked{.is_given = true, .precision = given};
    EXPECT_EQ(choose_precision(asked, kFast, {}).precision, given);
    EXPECT_EQ(choose_precision(asked, kFast, {}).hint, "");
    EXPECT_EQ(choose_precision(asked, kSlow, Precision::k32).precision, given);
  }
  const PrecisionRequest bf16{.is_given = true, .precision = Precision::kBf16Mixed};
  EXPECT_EQ(choose_precision(bf16, kFast, {}).warning, "");
  EXPECT_THAT(choose_precision(bf16, kSlow, {}).warning, HasSubstr("only 1.9 times as fast"));
}

TEST(Precision, SaysWhereBf16WouldBeQuicker) {
  EXPECT_EQ(choose_precision(kNothing, kFast, {}).precision, Precision::k32);
  EXPECT_THAT(choose_precision(kNothing, kFast, {}).hint, HasSubstr("--precision bf16-mixed"));
  EXPECT_EQ(choose_precision(kNothing, kSlow, {}).hint, "");
  EXPECT_EQ(choose_precision(kNothing, kFast, Precision::k32).hint, "") << "a resume cannot change";
}

TEST(Precision, Float16OnACpuIsWarnedOfButNotOnADevice) {
  const PrecisionRequest half{.is_given = true, .precision = Precision::k16Mixed};
  const Computing cpu = kFast, device{.on_accelerators = true};
  EXPECT_THAT(choose_precision(half, cpu, {}).warning, HasSubstr("16-mixed is for GPUs"));
  EXPECT_EQ(choose_precision(half, device, {}).warning, "");
}

TEST(Precision, SpeaksOfDevicesWhereTheyCompute) {
  const Computing fast{.bf16_speed = 1.3, .on_accelerators = true},
      slow{.bf16_speed = 1.1, .on_accelerators = true};
  const PrecisionRequest bf16{.is_given = true, .precision = Precision::kBf16Mixed};
  EXPECT_EQ(choose_precision(kAuto, fast, {}).precision, Precision::kBf16Mixed);
  EXPECT_EQ(choose_precision(kAuto, slow, {}).precision, Precision::k32);
  EXPECT_THAT(choose_precision(kNothing, fast, {}).hint,
      HasSubstr("this device multiplies 1.3 times as fast"));
  EXPECT_THAT(choose_precision(bf16, slow, {}).warning, HasSubstr("a device of this run"));
  EXPECT_EQ(choose_precision(bf16, fast, {}).warning, "");
}

}  // namespace
}  // namespace lockstep
