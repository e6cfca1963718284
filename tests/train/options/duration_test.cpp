#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

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
