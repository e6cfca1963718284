#include "lockstep/core/text.h"

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string_view>
#include <vector>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

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

TEST(KeyedNumber, IsThatBehindItsKey) {
  const std::string events = "low 0\nhigh 0\nmax 17\noom 3\noom_kill 2\noom_group_kill 0\n";
  EXPECT_EQ(keyed_number(events, "oom_kill"), 2);
  EXPECT_EQ(keyed_number(events, "oom"), 3);
  EXPECT_EQ(keyed_number(events, "none"), std::nullopt);
  EXPECT_EQ(keyed_number("", "oom"), std::nullopt);
  const std::string status = "VmPeak:\t  900 kB\nVmHWM:\t     512 kB\nVmRSS:\t 1 kB\n";
  EXPECT_EQ(keyed_number(status, "VmHWM:"), 512);
  for (const char* cut : {"VmHWM:", "VmHWM:\tmany kB\n", "VmHWM:\t99999999999999999999 kB\n"})
    EXPECT_EQ(keyed_number(cut, "VmHWM:"), std::nullopt) << cut;
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

TEST(Bytes, AreReadWithAndWithoutUnit) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("1000"), 1000);
  EXPECT_EQ(parse_bytes("64K"), 65536);
  EXPECT_EQ(parse_bytes("500M"), 524'288'000);
  EXPECT_EQ(parse_bytes("1.5G"), 1'610'612'736);
  EXPECT_EQ(parse_bytes("1024T"), std::int64_t{1} << 50);
}

TEST(Bytes, RefuseWhatIsNone) {
  for (const char* bad : {"", "G", "2g", "2GB", "2 G", "-1", "-0", "-1G", "nan", "inf", "1e3",
           "1025T", "2G1", "0x10", "0X", "0Q"}) {
    EXPECT_THROW(parse_bytes(bad), InvalidArgument) << bad;
  }
  EXPECT_THAT(testing::message_of<InvalidArgument>([] { parse_bytes("2g"); }),
      ::testing::HasSubstr("such as 2G, 1.5G, 500M, 64K, or a number of bytes, at most 1024T: "));
}

TEST(EditDistance, CountsLetters) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("nnodes", "nndoes"), 1U) << "neighbours swapped";
  EXPECT_EQ(edit_distance("same", "same"), 0U);
}

TEST(DidYouMean, ProposesTheNearest) {
  const std::vector<std::string> known{"--nproc-per-node", "--nnodes", "--node-rank", "--tee"};
  EXPECT_EQ(did_you_mean("--nproc-per-nod", known), "; did you mean --nproc-per-node?");
  EXPECT_EQ(did_you_mean("--nproc_pre_node", known), "; did you mean --nproc-per-node?");
  EXPECT_EQ(did_you_mean("--nproc", known), "; did you mean --nproc-per-node?");
  EXPECT_EQ(did_you_mean("--nodes", known), "; did you mean --nnodes?");
  EXPECT_EQ(did_you_mean("--te", known), "; did you mean --tee?");
}

TEST(DidYouMean, IsSilentWhenNothingIsNear) {
  EXPECT_EQ(did_you_mean("--frobnicate", {"--nnodes", "--tee"}), "");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

TEST(Utf8, TakesEveryLength) {
  for (const char* text : {"", "a", "\x7f", "é", "\xdf\xbf", "\xe0\xa0\x80", "日", "\xed\x9f\xbf",
           "\xee\x80\x80", "\xf0\x90\x80\x80", "😀", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
}

TEST(Utf8, RefusesWhatIsCutStrayTooLongOrNoCharacter) {
  for (const char* text :
      {"\x80", "\xbf", "\xff", "\xfe", "\xc3", "a\xc3", "\xe6\x97", "\xf0\x9f\x98", "\xc3(",
          "\xe6(\xa5", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80",
          "\xed\xbf\xbf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"}) {
    EXPECT_FALSE(is_utf8(text)) << printable(text);
  }
}

TEST(Printable, EscapesWhatCouldDisturbATerminal) {
  EXPECT_EQ(printable("a b"), "\"a b\"");
  EXPECT_EQ(printable("\x1b[31m\n\"\\é\x7f"), R"("\x1b[31m\x0a\x22\x5c\xc3\xa9\x7f")");
  EXPECT_EQ(printable(std::string(100, 'a')), '"' + std::string(100, 'a') + '"');
  EXPECT_EQ(printable(std::string(101, 'a')), '"' + std::string(100, 'a') + "...\"");
}

TEST(PrintablePath, LeavesTextAlone) {
  for (const std::string text : {"", "a b.jpg", "é", "\u4e2d\u6587", "\U0001f408.png", "~"}) {
    EXPECT_EQ(printable_path(text), text);
  }
}

TEST(PrintablePath, EscapesControlCharacters) {
  EXPECT_EQ(printable_path("a\nb\tc\x1b[31m\x7f"), "a\\nb\\tc\\x1b[31m\\x7f");
  EXPECT_EQ(printable_path(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(printable_path("\xc2\x85"), "\\xc2\\x85");
}

TEST(PrintablePath, EscapesWhatIsNoUtf8) {
  EXPECT_EQ(printable_path("\xff"), "\\xff");
  EXPECT_EQ(printable_path("\x80"), "\\x80");
  EXPECT_EQ(printable_path("\xc3"), "\\xc3");           // cut
  EXPECT_EQ(printable_path("\xc3\x28"), "\\xc3(");      // no continuation
  EXPECT_EQ(printable_path("\xc0\xaf"), "\\xc0\\xaf");  // too long for its character
  EXPECT_EQ(printable_path("\xe0\x9f\xbf"), "\\xe0\\x9f\\xbf");
  EXPECT_EQ(printable_path("\xf0\x8f\xbf\xbf"), "\\xf0\\x8f\\xbf\\xbf");
  EXPECT_EQ(printable_path("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a surrogate pair
  EXPECT_EQ(printable_path("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  EXPECT_EQ(printable_path("\xe4\xb8\xff\xad"), "\\xe4\\xb8\\xff\\xad");
}

std::string of(std::string_view text) {
  return base64(std::vector<std::uint8_t>(text.begin(), text.end()));
}

// The test vectors of RFC 4648, section 10.
TEST(Base64, WritesWhatTheStandardDoes) {
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("f"), "Zg==");
  EXPECT_EQ(of("fo"), "Zm8=");
  EXPECT_EQ(of("foo"), "Zm9v");
  EXPECT_EQ(of("foob"), "Zm9vYg==");
  EXPECT_EQ(of("fooba"), "Zm9vYmE=");
  EXPECT_EQ(of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(of("\xfb\xff\xfe"), "+//+");
}

}  // namespace
}  // namespace lockstep
