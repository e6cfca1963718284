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

// A segmentation of two classes, one of which is nowhere.
EvaluationResult segmentation_result() {
  EvaluationResult result = result_of(0);
  result.scores = {.loss = 0.5, .mean_iou = 0.25, .pixel_accuracy = 0.75, .more = {{"off", 2}}};
  result.samples = 12;
  result.class_names = {"0", "road"};
  result.of_classes = {{.name = "iou", .title = "IoU", .values = {std::nullopt, 0.25}}};
  result.worst = {{.judgement = {.index = 5, .loss = 2.5}, .name = "some 5", .png = {1, 2, 3}}};
  return result;
}

TEST(EvaluationOfAnotherTask, HasItsScoresAndClassesInJson) {
  const Json json = Json::parse(evaluation_json(segmentation_result()));
  EXPECT_EQ(json["mean_iou"], 0.25);
  EXPECT_EQ(json["off"], 2);
  EXPECT_TRUE(json["accuracy"].is_null());
  EXPECT_FALSE(json.contains("rmse"));
  EXPECT_TRUE(json["classes"][0]["iou"].is_null());
  EXPECT_EQ(json["classes"][1], Json::parse(R"({"class": 1, "name": "road", "iou": 0.25})"));
  EXPECT_TRUE(json["worst"][0]["class"].is_null());
}

TEST(EvaluationOfAnotherTask, ShowsNoConfusion) {
  const std::string text = evaluation_text(segmentation_result());
  EXPECT_THAT(text,
      HasSubstr("\nloss            0.5000\nmean IoU        0.2500\npixel accuracy  0.7500\n"));
  EXPECT_THAT(text, HasSubstr("1 road"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("taken for")));
  const page::Page page = page_of_evaluation(segmentation_result());
  page::check_page(page);
  ASSERT_EQ(page.sections.size(), 2U);
  EXPECT_EQ(page.sections[0].conclusion.answer, "Mean IoU 0.2500 on 12 samples");
  EXPECT_THAT(
      page.sections[1].pictures.at(0).caption, ::testing::ElementsAre("loss 2.5000", "some 5"));
}

TEST(EvaluationOfAnotherTask, MayHaveNoClassesAtAll) {
  EvaluationResult result = segmentation_result();
  result.of_classes = {};
  result.class_names = {};
  EXPECT_EQ(evaluation_text(result).find("class"), std::string::npos);
  page::check_page(page_of_evaluation(result));
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
