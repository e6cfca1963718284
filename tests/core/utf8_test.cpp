#include "lockstep/core/utf8.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Utf8, TakesEveryLength) {
  for (const char* text :
       {"", "a", "\x7f", "é", "\xdf\xbf", "\xe0\xa0\x80", "日", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xf0\x90\x80\x80", "😀", "\xf4\x8f\xbf\xbf"}) {
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

}  // namespace
}  // namespace lockstep
