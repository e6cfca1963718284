#include <gtest/gtest.h>

#include "lockstep/core/text.h"

namespace lockstep {
namespace {

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

}  // namespace
}  // namespace lockstep
