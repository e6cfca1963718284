#include "lockstep/formats/event_file.h"

#include <gtest/gtest.h>
#include <numeric>

#include "lockstep/core/text.h"

namespace lockstep {
namespace {

std::string hexadecimal(const std::string& bytes) {
  return hex_of(std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
}

// The examples of RFC 3720, appendix B.4.
TEST(EventFile, ItsChecksumIsTheStandards) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string ascending(32, '\0');
  std::iota(ascending.begin(), ascending.end(), '\0');
  EXPECT_EQ(crc32c(ascending), 0x46dd794eU);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
}

// What RecordWriter and event_pb2 of Python's tensorboard 2.21 write.
TEST(EventFile, ItsBytesAreTensorBoards) {
  EXPECT_EQ(hexadecimal(version_event({1.5, 0})),
      "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
  EXPECT_EQ(hexadecimal(restart_event({1.5, 301})),
      "100000000000000095fbfe1809000000000000f83f10ad023a020801d17949d4");
  EXPECT_EQ(hexadecimal(scalars_event({1.5, 300}, {{"train/loss", 0.25}, {"train/lr", 0.1}})),
      "3200000000000000241956ec09000000000000f83f10ac022a240a110a0a747261696e2f6c6f7373150000803e"
      "0a0f0a08747261696e2f6c7215cdcccc3d630865f7");
  EXPECT_EQ(hexadecimal(scalars_event({1.5, (std::int64_t{1} << 40) + 3}, {})),
      "1200000000000000241f642509000000000000f83f108380808080202a009637205d");
}

TEST(EventFile, NamesSortByTime) {
  EXPECT_EQ(event_file_name(1700000000), "events.out.tfevents.1700000000.lockstep");
  EXPECT_EQ(event_file_name(7), "events.out.tfevents.0000000007.lockstep");
  EXPECT_TRUE(is_event_file_name(event_file_name(7)));
  EXPECT_FALSE(is_event_file_name("events.out.tfevents.1700000000.host.1.0"));
}

TEST(EventFile, TheNextNameComesAfterAllWhateverTheClockSays) {
  EXPECT_EQ(next_event_file_name({}, 50), event_file_name(50));
  EXPECT_EQ(next_event_file_name({"readme", event_file_name(40)}, 50), event_file_name(50));
  EXPECT_EQ(
      next_event_file_name({event_file_name(50), event_file_name(49)}, 50), event_file_name(51));
  EXPECT_EQ(
      next_event_file_name({"events.out.tfevents.0000000090.host.1.0"}, 50), event_file_name(91));
}

}  // namespace
}  // namespace lockstep
