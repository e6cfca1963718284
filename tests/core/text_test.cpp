#include "lockstep/core/text.h"

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(ParseNumber, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(parse_number<int>("42"), 42);
  EXPECT_EQ(parse_number<int>("-42"), -42);
  EXPECT_EQ(parse_number<double>("1e-3"), 1e-3);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "0x10", "--1", "1.0"})
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << text;
}

TEST(ParseNumber, KeepsToTheRangeOfTheType) {
  EXPECT_EQ(parse_number<int>("2147483648"), std::nullopt);
  EXPECT_EQ(parse_number<std::int64_t>("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_number<std::int64_t>("9223372036854775808"), std::nullopt);
  EXPECT_EQ(parse_number<std::uint64_t>("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(parse_number<std::uint64_t>("-1"), std::nullopt);
}

TEST(ParseNumber, KnowsNoInfinityAndNoNan) {
  for (const char* text : {"inf", "-inf", "nan", "1e999"})
    EXPECT_EQ(parse_number<double>(text), std::nullopt) << text;
}

TEST(Joined, PutsTheSeparatorBetweenWordsOnly) {
  EXPECT_EQ(joined({}), "");
  EXPECT_EQ(joined({"one"}), "one");
  EXPECT_EQ(joined({"one", "", "two"}), "one, , two");
  EXPECT_EQ(joined({"one", "two"}, "|"), "one|two");
}

TEST(FirstOf, NamesTenAndCountsTheOthers) {
  EXPECT_EQ(first_of({"a", "b"}, 2), "a, b");
  EXPECT_EQ(first_of({"a", "b"}, 1500), "a, b and 1498 more");
  EXPECT_EQ(first_of({"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"}, 11),
      "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 1 more");
  EXPECT_EQ(first_of({}, 0), "");
}

TEST(FirstLines, KeepsTenAndCountsTheOthers) {
  std::string ten;
  for (int i = 0; i < 10; ++i) ten += "  line\n";
  EXPECT_EQ(first_lines(ten), ten);
  EXPECT_EQ(first_lines(ten + "x\ny\n"), ten + "  ... and 2 more\n");
  EXPECT_EQ(first_lines(""), "");
  EXPECT_EQ(first_lines("one"), "one");
}

TEST(Split, KeepsEmptyPieces) {
  EXPECT_THAT(split("", ','), ElementsAre(""));
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b", ""));
}

TEST(Duration, ReadsUnitsAndTheirSums) {
  EXPECT_DOUBLE_EQ(parse_duration("90s"), 90);
  EXPECT_DOUBLE_EQ(parse_duration("30m"), 1800);
  EXPECT_DOUBLE_EQ(parse_duration("2h"), 7200);
  EXPECT_DOUBLE_EQ(parse_duration("1d"), 86400);
  EXPECT_DOUBLE_EQ(parse_duration("1h30m5s"), 5405);
  EXPECT_DOUBLE_EQ(parse_duration("1.5h"), 5400);
  EXPECT_DOUBLE_EQ(parse_duration("0.25"), 0.25);
}

TEST(Duration, RefusesWhatIsNone) {
  for (const char* bad : {"", "h", "2x", "2 h", "-5s", "0", "0s", "1h5", "30m2h", "1m1m", "nan",
           "inf", "1e999s", "2hh", "s5"}) {
    EXPECT_THROW(parse_duration(bad), InvalidArgument) << bad;
  }
}

TEST(Duration, IsWrittenForPeople) {
  EXPECT_EQ(format_duration(4.21), "4.2 s");
  EXPECT_EQ(format_duration(59.96), "1:00");
  EXPECT_EQ(format_duration(65), "1:05");
  EXPECT_EQ(format_duration(7384), "2:03:04");
}

}  // namespace
}  // namespace lockstep
