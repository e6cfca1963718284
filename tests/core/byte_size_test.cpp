#include "lockstep/core/byte_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

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

}  // namespace
}  // namespace lockstep
