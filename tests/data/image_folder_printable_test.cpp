#include <gtest/gtest.h>

#include "lockstep/data/image_folder_list.h"

namespace lockstep::data {
namespace {

TEST(Printable, LeavesTextAlone) {
  for (const std::string text : {"", "a b.jpg", "é", "\u4e2d\u6587", "\U0001f408.png", "~"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable("a\nb\tc\x1b[31m\x7f"), "a\\nb\\tc\\x1b[31m\\x7f");
  EXPECT_EQ(printable(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xc2\x85"), "\\xc2\\x85");
}

TEST(Printable, EscapesWhatIsNoUtf8) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\x80"), "\\x80");
  EXPECT_EQ(printable("\xc3"), "\\xc3");           // cut
  EXPECT_EQ(printable("\xc3\x28"), "\\xc3(");      // no continuation
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");  // too long for its character
  EXPECT_EQ(printable("\xe0\x9f\xbf"), "\\xe0\\x9f\\xbf");
  EXPECT_EQ(printable("\xf0\x8f\xbf\xbf"), "\\xf0\\x8f\\xbf\\xbf");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // half of a surrogate pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  EXPECT_EQ(printable("\xe4\xb8\xff\xad"), "\\xe4\\xb8\\xff\\xad");
}

}  // namespace
}  // namespace lockstep::data
