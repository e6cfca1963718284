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

}  // namespace
}  // namespace lockstep
