#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/mutated.h"
#include "tests/formats/weights/torch_bytes.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
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

/// Opcodes between the protocol and STOP, and what is said of them.
using Flaws = std::vector<std::pair<std::string, std::string>>;

void expect_flaws(const Flaws& flaws) {
  for (const auto& [opcodes, reason] : flaws)
    EXPECT_THAT(flaw(pickle_of(opcodes)), HasSubstr(reason)) << printable(opcodes);
}

std::int64_t integer_in(const std::string& opcodes) {
  return std::get<std::int64_t>(read(pickle_of(opcodes)).root);
}

TEST(PickleReader, ReadsIntegersOfEveryForm) {
  for (const auto& [opcodes, number] :
      std::vector<std::pair<std::string, std::int64_t>>{{"K\xff", 255}, {"M\x01\x02", 0x201},
          {"J\xfe\xff\xff\xff", -2}, {"J\x01\x02\x03\x04", 0x04030201}, {"\x8a\0"s, 0},
          {"\x8a\x01\x80", -128}, {"\x8a\x02\x80\0"s, 128}, {"\x8a\x05\xff\xff\xff\xff\xff", -1},
          {"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", INT64_MAX},
          {"\x8a\x08\0\0\0\0\0\0\0\x80"s, INT64_MIN}})
    EXPECT_EQ(integer_in(opcodes), number);
  EXPECT_EQ(kind_of(read(pickle_of("\x8a\x09\0\0\0\0\0\0\0\0\x01"s)).root),
      "the name \"an integer of more than 64 bits\"");
}

TEST(PickleReader, ReadsFloatsAndTexts) {
  EXPECT_EQ(std::get<double>(read(pickle_of("G\x3f\xe0\0\0\0\0\0\0"s)).root), 0.5);
  for (const std::string& opcodes : {"\x8d\x02\0\0\0\0\0\0\0ab"s, "\x8c\x02"s + "ab"}) {
    const auto pickle = read(pickle_of(opcodes));
    EXPECT_EQ(*std::get<Text>(pickle.root), "ab");
  }
}

TEST(PickleReader, LengthsAreNotBelieved) {
  expect_flaws({{"X\xff\xff\xff\xff",
                    "FILE: offset 102: the pickle ends: 4294967295 bytes are needed, 1 are left"},
      {"\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615 bytes are needed, 1 are left"},
      {"\x95\xff\xff\xff\xff\xff\xff\xff\xff",
          "a frame of 18446744073709551615 bytes, 1 are left"}});
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
  expect_flaws({{"N0N", "FILE: offset 103: the opcode POP is not read; no checkpoint needs it"},
      {"(i", "the opcode INST is not read"}, {"\xfe", "the opcode without a meaning is not read"}});
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
  for (const char* opcodes : {"", "s", "a", "\x85", "N\x86", "NN\x87", "R", "NR", "b", "Q", "q\x01",
           "\x94", "\x93", "(\x85", "](a", "N(R"}) {
    EXPECT_NE(flaw(pickle_of(opcodes)), "") << opcodes;
  }
  const std::string more = "the pickle leaves more than one value";
  expect_flaws(
      {{"N(\x85", "a value is taken where none is"}, {"N(q\x01", "a value is taken where none is"},
          {"t", "no mark is left"}, {"](t", more}, {"NN", more}, {"N(", more}});
  EXPECT_THAT(flaw(pickle_of("N") + "N"),
      HasSubstr("FILE: offset 104: the pickle continues after its end"));
}

TEST(PickleReader, OnlyWhatWasKeptIsFetched) {
  expect_flaws(
      {{"h\0"s, "nothing was kept as number 0"}, {"Nq\x05h\x04", "nothing was kept as number 4"},
          {"j\xff\xff\xff\xff", "nothing was kept as number 4294967295"}});
  EXPECT_NO_THROW(read(pickle_of("]r\xff\xff\xff\xffj\xff\xff\xff\xff\x86")));
  const auto kept = read(pickle_of("K\x05\x94K\x06\x94h\x01\x87"));
  EXPECT_EQ(std::get<std::int64_t>(std::get<const Tuple*>(kept.root)->items[2]), 6);
}

TEST(PickleReader, ItemsGoIntoContainersOnly) {
  expect_flaws({{"NNNs", "entries are put into None"}, {"](NNu", "entries are put into a list"},
      {"}(Nu", "a dict gets a key without a value"}, {"}Na", "items are appended to a dict"},
      {")(Ne", "items are appended to a tuple"}});
}

TEST(PickleReader, AttributesAreThoseOfAnOrderedDict) {
  EXPECT_NO_THROW(read(pickle_of(testing::empty_ordered_dict() + "}b")));
  expect_flaws({{"}}b", "attributes (a dict) are set on a dict"},
      {"]}b", "attributes (a dict) are set on a list"},
      {testing::empty_ordered_dict() + "Nb", "attributes (None) are set on a dict"}});
}

TEST(PickleReader, NamesAndTextsAreBoundedAndUtf8) {
  expect_flaws({{concat("c", std::string(2000, 'x'), "\n"), "a name does not end"},
      {"ctorch", "a name does not end"}, {text("\xff"), "the text \"\\xff\" is not UTF-8"},
      {text("\xed\xa0\x80"), "is not UTF-8"}});
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
