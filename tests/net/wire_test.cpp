#include "lockstep/net/wire.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep::net {
namespace {

std::vector<std::string> all_of(FrameDecoder& decoder) {
  std::vector<std::string> messages;
  while (auto message = decoder.next()) messages.push_back(*std::move(message));
  return messages;
}

TEST(Frame, HasItsLengthBeforeIt) { EXPECT_EQ(frame_of("abc"), std::string("\0\0\0\3abc", 7)); }

RC_GTEST_PROP(FrameDecoding, GivesTheMessagesWhateverThePieces, ()) {
  const auto messages = *rc::gen::container<std::vector<std::string>>(
      rc::gen::nonEmpty(rc::gen::arbitrary<std::string>()));
  std::string bytes;
  for (const std::string& message : messages) bytes += frame_of(message);
  FrameDecoder decoder(1 << 20);
  std::vector<std::string> read;
  while (!bytes.empty()) {
    const auto size = *rc::gen::inRange<std::size_t>(1, bytes.size() + 1);
    decoder.feed(bytes.substr(0, size));
    bytes.erase(0, size);
    for (std::string& message : all_of(decoder)) read.push_back(std::move(message));
  }
  RC_ASSERT(read == messages);
}

TEST(Frame, OfNoBytesOrTooManyIsRefusedAtOnce) {
  FrameDecoder decoder(3);
  decoder.feed(frame_of("abc"));
  EXPECT_EQ(decoder.next(), "abc");
  for (const std::string& head : {std::string("\0\0\0\0", 4), std::string("\0\0\0\4", 4),
           std::string("\xff\xff\xff\xff", 4), std::string("GET ")}) {
    FrameDecoder other(3);
    other.feed(head);
    EXPECT_THROW(other.next(), DataError);
  }
}

TEST(Frame, IsNotThereBeforeItsEnd) {
  FrameDecoder decoder(100);
  const std::string bytes = frame_of("abc");
  for (std::size_t size = 0; size + 1 < bytes.size(); ++size) {
    decoder.feed(bytes.substr(size, 1));
    EXPECT_EQ(decoder.next(), std::nullopt);
  }
}

TEST(MessageBytes, AreReadAsTheyWereWritten) {
  const std::string bytes =
      ByteWriter().byte(200).count(4'000'000'000U).number(-5).text("a\0b").texts({"", "x"}).take();
  ByteReader reader(bytes);
  EXPECT_EQ(reader.byte(), 200);
  EXPECT_EQ(reader.count(), 4'000'000'000U);
  EXPECT_EQ(reader.number(), -5);
  EXPECT_EQ(reader.text(), "a");
  EXPECT_EQ(reader.texts(), (std::vector<std::string>{"", "x"}));
  reader.finish();
}

TEST(MessageBytes, ThatEndTooEarlyOrLieAreRefused) {
  EXPECT_THROW(ByteReader("abc").count(), DataError);
  EXPECT_THROW(ByteReader(std::string_view("\xff\xff\xff\xff", 4)).text(), DataError);
  EXPECT_THROW(ByteReader(std::string_view("\xff\xff\xff\xff\0\0\0\0", 8)).texts(), DataError);
  EXPECT_THROW(ByteReader("a").finish(), DataError);
}

}  // namespace
}  // namespace lockstep::net
