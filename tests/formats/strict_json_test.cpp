#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& text, const JsonLimits& limits = {}) {
  return testing::message_of<DataError>([&] { parse_strict_json(text, "f", limits); });
}

TEST(StrictJson, IsWhatIsWritten) {
  const auto value = parse_strict_json(R"({"a":[1,-2,0.5,"é",null,true],"b":{"a":{}}})", "f");
  EXPECT_EQ(value["a"].size(), 6U);
  EXPECT_EQ(value["a"][2], 0.5);
  EXPECT_TRUE(value["b"]["a"].is_object()) << "the same key in another object";
}

TEST(StrictJson, HasNoKeyTwice) {
  EXPECT_EQ(refusal(R"({"a":1,"a":1})"), R"(f: a key comes twice: "a")");
  EXPECT_THAT(refusal(R"([{"b":{"a":[{}],"c":1,"a":2}}])"), HasSubstr("comes twice"));
  EXPECT_THAT(refusal(R"({"a":1,"\u0061":1})"), HasSubstr("comes twice"));
}

TEST(StrictJson, HasLimits) {
  EXPECT_NO_THROW(parse_strict_json("[[1]]", "f", {.depth = 2}));
  EXPECT_EQ(refusal("[[[]]]", {.depth = 2}), "f: more than 2 objects and lists within each other");
  EXPECT_THAT(refusal(R"([{"a":{}}])", {.depth = 2}), HasSubstr("more than 2"));
  EXPECT_THAT(refusal(std::string(1'000'000, '[')), HasSubstr("more than 16"));
  EXPECT_NO_THROW(parse_strict_json("1234", "f", {.bytes = 4}));
  EXPECT_EQ(refusal("12345", {.bytes = 4}), "f: 5 bytes; at most 4 belong here");
}

TEST(StrictJson, IsJsonInUtf8) {
  EXPECT_EQ(refusal("[1,x]"), "f: offset 3: is not JSON in UTF-8");
  for (const char* text :
      {"", " ", "[1", "[1]]", "{\"a\"}", "[1,]", "nan", "[01]", "['a']", "\"\xff\"", "// a\n1"}) {
    EXPECT_THAT(refusal(text), HasSubstr("is not JSON")) << text;
  }
  EXPECT_EQ(refusal("[1e999]"), "f: has a number that no double can hold");
}

}  // namespace
}  // namespace lockstep
