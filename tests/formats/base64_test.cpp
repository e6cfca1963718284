#include "lockstep/formats/base64.h"

#include <gtest/gtest.h>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

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
