#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/mutated.h"
#include "tests/formats/weights/torch_bytes.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/pickle.h"

namespace lockstep::pickle {
namespace {

using ::testing::HasSubstr;
using testing::pickle_of;
using testing::text;
using namespace std::string_literals;

Pickle read(const std::string& bytes) {
  return read_pickle(
      {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, "FILE", 100);
}

std::string flaw(const std::string& bytes) {
  testing::take_largest_allocation();
  const std::string message = testing::message_of<DataError>([&] { read(bytes); });
  EXPECT_LE(testing::take_largest_allocation(), 64U * 1024 + 4 * bytes.size());
  return message;
}

std::int64_t integer_in(const std::string& opcodes) {
  return std::get<std::int64_t>(read(pickle_of(opcodes)).root);
}

TEST(PickleReader, ReadsIntegersOfEveryForm) {
  EXPECT_EQ(integer_in("K\xff"), 255);
  EXPECT_EQ(integer_in("M\x01\x02"), 0x201);
  EXPECT_EQ(integer_in("J\xfe\xff\xff\xff"), -2);
  EXPECT_EQ(integer_in("J\x01\x02\x03\x04"), 0x04030201);
  EXPECT_EQ(integer_in("\x8a\0"s), 0);
  EXPECT_EQ(integer_in("\x8a\x01\x80"), -128);
  EXPECT_EQ(integer_in("\x8a\x02\x80\0"s), 128);
  EXPECT_EQ(integer_in("\x8a\x05\xff\xff\xff\xff\xff"), -1);
  EXPECT_EQ(integer_in("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"), INT64_MAX);
  EXPECT_EQ(integer_in("\x8a\x08\0\0\0\0\0\0\0\x80"s), INT64_MIN);
  EXPECT_EQ(kind_of(read(pickle_of("\x8a\x09\0\0\0\0\0\0\0\0\x01"s)).root),
      "the name \"an integer of more than 64 bits\"");
}

TEST(PickleReader, ReadsFloatsAndTexts) {
  EXPECT_EQ(std::get<double>(read(pickle_of("G\x3f\xe0\0\0\0\0\0\0"s)).root), 0.5);
  const auto long_text = read(pickle_of("\x8d\x02\0\0\0\0\0\0\0ab"s));
  EXPECT_EQ(*std::get<Text>(long_text.root), "ab");
  const auto short_text = read(pickle_of("\x8c\x02"s + "ab"));
  EXPECT_EQ(*std::get<Text>(short_text.root), "ab");
}

TEST(PickleReader, LengthsAreNotBelieved) {
  EXPECT_THAT(flaw(pickle_of("X\xff\xff\xff\xff")),
      HasSubstr("FILE: offset 102: the pickle ends: 4294967295 bytes are needed, 1 are left"));
  EXPECT_THAT(flaw(pickle_of("\x8d\xff\xff\xff\xff\xff\xff\xff\xff")),
      HasSubstr("18446744073709551615 bytes are needed, 1 are left"));
  EXPECT_THAT(flaw(pickle_of("\x95\xff\xff\xff\xff\xff\xff\xff\xff")),
      HasSubstr("a frame of 18446744073709551615 bytes, 1 are left"));
  EXPECT_THAT(flaw("\x80\x02\x8c"), HasSubstr("1 bytes are needed, 0 are left"));
}

TEST(PickleReader, TheProtocolComesFirstAndOnce) {
  EXPECT_THAT(flaw(""), HasSubstr("FILE: offset 100: the pickle ends: 1 bytes are needed"));
  EXPECT_THAT(flaw("N."), HasSubstr("no pickle: it does not begin with its protocol"));
  for (const char protocol : {'\0', '\1', '\6', '\xff'}) {
    EXPECT_THAT(flaw("\x80"s + protocol + "N."), HasSubstr("where one of 2 to 5 begins a pickle"));
  }
  EXPECT_THAT(flaw(pickle_of("\x80\x02N")), HasSubstr("protocol 2 where one of 2 to 5 begins"));
}

TEST(PickleReader, RefusesOpcodesThatNoCheckpointNeeds) {
  EXPECT_THAT(flaw(pickle_of("N0N")),
      HasSubstr("FILE: offset 103: the opcode POP is not read; no checkpoint needs it"));
  EXPECT_THAT(flaw(pickle_of("(i")), HasSubstr("the opcode INST is not read"));
  EXPECT_THAT(flaw(pickle_of("\xfe")), HasSubstr("the opcode without a meaning is not read"));
  const std::string read_codes =
      "\x80\x95.(N\x88\x89JKM\x8aGX\x8c\x8d)t\x85\x86\x87]ae}suqr\x94hjc\x93RbQ"
      "\x8b\x43\x42\x8e\x96\x8f\x90\x91\x81\x92";
  int refused = 0;
  for (int code = 0; code < 256; ++code) {
    if (read_codes.find(static_cast<char>(code)) != std::string::npos) continue;
    EXPECT_THAT(flaw(pickle_of(std::string(1, static_cast<char>(code)))), HasSubstr("is not read"))
        << code;
    ++refused;
  }
  EXPECT_EQ(refused, 256 - 46);
}

TEST(PickleReader, TheStackCannotRunEmpty) {
  const auto nothing = HasSubstr("a value is taken where none is");
  for (const char* opcodes : {"", "s", "a", "\x85", "N\x86", "NN\x87", "R", "NR", "b", "Q", "q\x01",
           "\x94", "\x93", "(\x85", "](a", "N(R"}) {
    EXPECT_NE(flaw(pickle_of(opcodes)), "") << opcodes;
  }
  EXPECT_THAT(flaw(pickle_of("N(\x85")), nothing);
  EXPECT_THAT(flaw(pickle_of("N(q\x01")), nothing);
  EXPECT_THAT(flaw(pickle_of("t")), HasSubstr("no mark is left"));
  EXPECT_THAT(flaw(pickle_of("](t")), HasSubstr("the pickle leaves more than one value"));
  EXPECT_THAT(flaw(pickle_of("NN")), HasSubstr("the pickle leaves more than one value"));
  EXPECT_THAT(flaw(pickle_of("N(")), HasSubstr("the pickle leaves more than one value"));
  EXPECT_THAT(flaw(pickle_of("N") + "N"),
      HasSubstr("FILE: offset 104: the pickle continues after its end"));
}

TEST(PickleReader, OnlyWhatWasKeptIsFetched) {
  EXPECT_THAT(flaw(pickle_of("h\0"s)), HasSubstr("nothing was kept as number 0"));
  EXPECT_THAT(flaw(pickle_of("Nq\x05h\x04")), HasSubstr("nothing was kept as number 4"));
  EXPECT_THAT(
      flaw(pickle_of("j\xff\xff\xff\xff")), HasSubstr("nothing was kept as number 4294967295"));
  EXPECT_NO_THROW(read(pickle_of("]r\xff\xff\xff\xffj\xff\xff\xff\xff\x86")));
  const auto kept = read(pickle_of("K\x05\x94K\x06\x94h\x01\x87"));
  EXPECT_EQ(std::get<std::int64_t>(std::get<const Tuple*>(kept.root)->items[2]), 6);
}

TEST(PickleReader, ItemsGoIntoContainersOnly) {
  EXPECT_THAT(flaw(pickle_of("NNNs")), HasSubstr("entries are put into None"));
  EXPECT_THAT(flaw(pickle_of("](NNu")), HasSubstr("entries are put into a list"));
  EXPECT_THAT(flaw(pickle_of("}(Nu")), HasSubstr("a dict gets a key without a value"));
  EXPECT_THAT(flaw(pickle_of("}Na")), HasSubstr("items are appended to a dict"));
  EXPECT_THAT(flaw(pickle_of(")(Ne")), HasSubstr("items are appended to a tuple"));
}

TEST(PickleReader, AttributesAreThoseOfAnOrderedDict) {
  EXPECT_NO_THROW(read(pickle_of(testing::empty_ordered_dict() + "}b")));
  EXPECT_THAT(flaw(pickle_of("}}b")), HasSubstr("attributes (a dict) are set on a dict"));
  EXPECT_THAT(flaw(pickle_of("]}b")), HasSubstr("attributes (a dict) are set on a list"));
  EXPECT_THAT(flaw(pickle_of(testing::empty_ordered_dict() + "Nb")),
      HasSubstr("attributes (None) are set on a dict"));
}

TEST(PickleReader, NamesAndTextsAreBoundedAndUtf8) {
  EXPECT_THAT(
      flaw(pickle_of(concat("c", std::string(2000, 'x'), "\n"))), HasSubstr("a name does not end"));
  EXPECT_THAT(flaw(pickle_of("ctorch")), HasSubstr("a name does not end"));
  EXPECT_THAT(flaw(pickle_of(text("\xff"))), HasSubstr("the text \"\\xff\" is not UTF-8"));
  EXPECT_THAT(flaw(pickle_of(text("\xed\xa0\x80"))), HasSubstr("is not UTF-8"));
}

// 16 million times None cost 2.3 GB and 20 seconds before they were refused.
TEST(PickleReader, L5BombsOfOneByteOpcodesNeedLittleMemory) {
  const std::string bytes(16 << 20, 'x');
  const auto bomb = [&](const std::string& start, const std::string& opcodes) {
    std::string pickle = pickle_of(start);
    pickle.pop_back();
    while (pickle.size() + opcodes.size() < bytes.size()) pickle += opcodes;
    return pickle + '.';
  };
  for (const char* opcodes : {"N", "\x88", "]", "}", ")", "(", "N\x94", "N\x85", "K\x01"}) {
    EXPECT_THAT(flaw(bomb("](", opcodes)), HasSubstr("more than 4194304 values")) << opcodes;
  }
  EXPECT_THAT(flaw(bomb("N", "\x94")), HasSubstr("more than 4194304 values"));
}

}  // namespace
}  // namespace lockstep::pickle
