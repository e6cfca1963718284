#include "lockstep/report/evaluation/evaluation_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// Each class has three samples right, and one taken for the next.
EvaluationResult result_of(std::int64_t classes) {
  EvaluationResult result{.model = "toy",
      .data = "some",
      .split = "test",
      .precision = "32",
      .loss = "cross-entropy",
      .loss_plugin = "",
      .weights = {.file = "run/best.safetensors", .which = "best", .remark = "epoch 2"},
      .warning = "",
      .scores = {.loss = 0.5, .top1 = 0.75},
      .samples = 4 * classes,
      .class_names = {},
      .confusion = Confusion(classes),
      .worst = {}};
  for (std::int64_t label = 0; label < classes; ++label) {
    result.class_names.push_back("kind" + std::to_string(label));
    result.confusion.add(label, label, 3);
    result.confusion.add(label, (label + 1) % classes);
  }
  result.worst = {{.judgement = {.index = 5, .label = 1, .predicted = 0, .loss = 2.5},
      .name = "some <5>",
      .png = {1, 2, 3}}};
  return result;
}

TEST(EvaluationJson, HasScoresClassesConfusionAndTheWorst) {
  const Json json = Json::parse(evaluation_json(result_of(3)));
  EXPECT_EQ(json["v"], 1);
  EXPECT_EQ(json["output"], "eval");
  EXPECT_EQ(json["split"], "test");
  EXPECT_EQ(json["weights"]["which"], "best");
  EXPECT_EQ(json["samples"], 12);
  EXPECT_EQ(json["loss"], 0.5);
  EXPECT_EQ(json["accuracy"], 0.75);
  EXPECT_TRUE(json["accuracy5"].is_null());
  EXPECT_EQ(json["classes"][1],
      Json::parse(R"({"class": 1, "name": "kind1", "samples": 4, "right": 3, "accuracy": 0.75})"));
  EXPECT_EQ(json["confusion"], Json::parse("[[3, 1, 0], [0, 3, 1], [1, 0, 3]]"));
  EXPECT_EQ(json["worst"][0],
      Json::parse(R"({"index": 5, "name": "some <5>", "class": 1, "predicted": 0, "loss": 2.5})"));
}

TEST(EvaluationJson, WhatIsNotFiniteIsNamed) {
  EvaluationResult result = result_of(2);
  result.scores.loss = std::numeric_limits<double>::quiet_NaN();
  result.worst[0].judgement.loss = std::numeric_limits<double>::infinity();
  const Json json = Json::parse(evaluation_json(result));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_EQ(json["nonfinite"], Json::parse(R"(["loss"])"));
  EXPECT_EQ(json["worst"][0]["nonfinite"], Json::parse(R"(["loss"])"));
}

TEST(EvaluationJson, PairsOfVeryManyClassesAreLeftOut) {
  EXPECT_EQ(Json::parse(evaluation_json(result_of(1000)))["confusion"].size(), 1000U);
  const Json json = Json::parse(evaluation_json(result_of(1001)));
  EXPECT_TRUE(json["confusion"].is_null());
  EXPECT_EQ(json["classes"].size(), 1001U);
}

TEST(EvaluationReport, NamesTheLossAndThePluginThatHasIt) {
  EvaluationResult result = result_of(3);
  EXPECT_THAT(page::to_html(page_of_evaluation(result)), HasSubstr(">cross-entropy<"));
  EXPECT_EQ(Json::parse(evaluation_json(result))["loss_name"], "cross-entropy");
  EXPECT_TRUE(Json::parse(evaluation_json(result))["loss_plugin"].is_null());
  result.loss = "focal";
  result.loss_plugin = "nets.so";
  EXPECT_THAT(evaluation_text(result), HasSubstr(", loss focal of nets.so\n"));
  EXPECT_THAT(page::to_html(page_of_evaluation(result)), HasSubstr(">focal of nets.so<"));
  EXPECT_EQ(Json::parse(evaluation_json(result))["loss_name"], "focal");
  EXPECT_EQ(Json::parse(evaluation_json(result))["loss_plugin"], "nets.so");
}

TEST(EvaluationText, FewClassesAreShownByPair) {
  const std::string text = evaluation_text(result_of(3));
  EXPECT_THAT(
      text, AllOf(HasSubstr("toy on some, test: 12 samples, precision 32, loss cross-entropy\n"),
                HasSubstr("Weights: run/best.safetensors (the run's best: epoch 2)\n"),
                HasSubstr("loss        0.5000\n"), HasSubstr("accuracy    0.7500\n"),
                HasSubstr("1 kind1"), HasSubstr("Samples of each class"), Not(HasSubstr("top-5"))));
}

TEST(EvaluationText, OfManyTheHardestAndTheMostFrequentMistakes) {
  EvaluationResult result = result_of(100);
  result.confusion.add(77, 5, 9);
  const std::string text = evaluation_text(result);
  EXPECT_THAT(text, HasSubstr("The hardest classes:\n"));
  EXPECT_LT(text.find("77 kind77"), text.find("0 kind0 "));
  EXPECT_THAT(text, HasSubstr("The most frequent mistakes:\n"));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 60);
}

TEST(EvaluationPage, HasAMapAndPicturesAndNothingFromElsewhere) {
  const std::string html = page::to_html(page_of_evaluation(result_of(10)));
  EXPECT_THAT(
      html, AllOf(HasSubstr("; img-src data:\">"), HasSubstr("src=\"data:image/png;base64,AQID\""),
                HasSubstr("is 1 kind1<br>taken for 0 kind0<br>loss 2.5000<br>some &lt;5&gt;"),
                HasSubstr("id=\"confusion-title\""),
                HasSubstr("class 1 kind1, taken for 2 kind2: 1 (25 %)"), Not(HasSubstr("<script")),
                Not(HasSubstr("href=\"http"))));
}

TEST(EvaluationPage, AnswersInShortAndNamesImagesForPeople) {
  EvaluationResult result = result_of(3);
  result.worst = {{.judgement = {.index = 5, .label = 1, .predicted = 1, .loss = 2.5},
      .name = "/home/someone/flowers/test/blue sky/7.png",
      .png = {1, 2, 3}}};
  const page::Page page = page_of_evaluation(result);
  for (const page::Section& section : page.sections)
    EXPECT_NE(section.conclusion.answer, "") << section.title;
  const std::string html = page::to_html(page);
  EXPECT_THAT(html, HasSubstr("Most often 0 kind0 is taken for 1 kind1: 1 of 4 samples"));
  EXPECT_THAT(
      html, HasSubstr("is 1 kind1<br>rightly taken for it<br>loss 2.5000<br>blue sky/7.png"));
  EXPECT_THAT(html, Not(HasSubstr("someone")));
}

TEST(EvaluationPage, ThousandsOfClassesHaveNoMap) {
  const std::string html = page::to_html(page_of_evaluation(result_of(201)));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("confusion-title")), HasSubstr("There are 201 classes"),
                        HasSubstr("The most frequent mistakes")));
}

TEST(EvaluationPage, WithoutPicturesNoneAreAllowed) {
  EvaluationResult result = result_of(10);
  result.worst.clear();
  EXPECT_THAT(page::to_html(page_of_evaluation(result)),
      AllOf(Not(HasSubstr("img-src")), Not(HasSubstr("Worst samples"))));
}

}  // namespace
}  // namespace lockstep
