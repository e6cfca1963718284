#include "lockstep/formats/json_fields.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class JsonFieldsTest : public ::testing::Test {
 protected:
  nlohmann::json json_ = nlohmann::json::parse(R"({
      "name": "toy", "on": true, "steps": 7, "below": -1, "loss": 0.5, "none": null,
      "best": {"epoch": 2}, "list": [1, 2.5], "names": ["a", "b"], "rows": [{"x": 1}, {"x": "y"}],
      "texts": {"k": "v"}, "huge": 18446744073709551615})");
  JsonFields fields_{json_, "run.json"};

  std::string refusal(const auto& call) { return testing::message_of<DataError>(call); }
};

TEST_F(JsonFieldsTest, ReadsEachKind) {
  EXPECT_EQ(fields_.text("name"), "toy");
  EXPECT_TRUE(fields_.flag("on"));
  EXPECT_EQ(fields_.count("steps"), 7);
  EXPECT_EQ(fields_.small_count("steps"), 7);
  EXPECT_EQ(fields_.number("loss"), 0.5);
  EXPECT_EQ(fields_.object("best").count("epoch"), 2);
  EXPECT_THAT(fields_.numbers("list"), ElementsAre(1, 2.5));
  EXPECT_THAT(fields_.texts("names"), ElementsAre("a", "b"));
  EXPECT_THAT(fields_.text_map("texts"), ElementsAre(Pair("k", "v")));
  EXPECT_EQ(fields_.objects("rows")[0].count("x"), 1);
}

TEST_F(JsonFieldsTest, TakesNullAndMissingForNothingWhereAsked) {
  for (const char* key : {"none", "absent"}) {
    EXPECT_FALSE(fields_.has(key));
    EXPECT_EQ(fields_.text_if(key), std::nullopt);
    EXPECT_EQ(fields_.flag_if(key), std::nullopt);
    EXPECT_EQ(fields_.count_if(key), std::nullopt);
    EXPECT_EQ(fields_.number_if(key), std::nullopt);
    EXPECT_TRUE(std::isnan(fields_.number_or_nan(key)));
    EXPECT_FALSE(fields_.object_if(key).has_value());
  }
  EXPECT_EQ(fields_.number_if("loss"), 0.5);
}

TEST_F(JsonFieldsTest, NamesFileFieldAndExpectation) {
  EXPECT_EQ(refusal([&] { fields_.text("steps"); }), "run.json: steps must be a text: 7");
  EXPECT_EQ(
      refusal([&] { fields_.count("absent"); }), "run.json: absent must be there: it is missing");
  EXPECT_EQ(refusal([&] { fields_.objects("rows")[1].count("x"); }),
      "run.json: rows[1].x must be a whole number of at least 0: \"y\"");
  EXPECT_EQ(
      refusal([&] { fields_.object("name"); }), "run.json: name must be a JSON object: \"toy\"");
  EXPECT_EQ(refusal([&] { JsonFields(nlohmann::json(3), "run.json"); }),
      "run.json: it must be a JSON object: 3");
}

TEST_F(JsonFieldsTest, KeepsToTheBounds) {
  EXPECT_NE(refusal([&] { fields_.count("below"); }), "");
  EXPECT_EQ(fields_.count("below", -1), -1);
  EXPECT_EQ(refusal([&] { fields_.count("steps", 0, 6); }),
      "run.json: steps must be a whole number from 0 to 6: 7");
  EXPECT_NE(refusal([&] { fields_.count("huge"); }), "");
  EXPECT_NE(refusal([&] { fields_.small_count("huge"); }), "");
  EXPECT_NE(refusal([&] { fields_.seconds("below"); }), "");
}

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

// nlohmann's parser needs a minute for them if it has a callback.
TEST(StrictJson, MayHaveManyObjectsInAList) {
  std::string text = "[{}";
  while (text.size() < (1 << 20) - 4) text += ",{}";
  EXPECT_EQ(parse_strict_json(text + "]", "f").size(), text.size() / 3);
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
