#include "bench/results_file/results_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/bench/studies/made_samples.h"
#include "tests/support/message_of.h"

#include "bench/studies/data_parallel.h"
#include "lockstep/core/error.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench::data_parallel {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As the study's notebook leaves them: its first results without `model_size`, the newest with it.
constexpr const char* kOldLines =
    R"({"n_dataset_repeat": 1, "batch_size": 128, "n_gpus": 1, "first epoch time": 9.389503240585327, "second epoch time": 9.451826333999634}
{"n_dataset_repeat": 1, "batch_size": 128, "n_gpus": 1, "first epoch time": 26.72149634361267, "second epoch time": 26.690542936325073}
{"n_dataset_repeat": 4, "batch_size": 128, "n_gpus": 1, "first epoch time": 37.70245623588562, "second epoch time": 37.85469889640808}
)";
constexpr const char* kNewLine =
    R"({"n_dataset_repeat": 1, "batch_size": 128, "n_gpus": 2, "model_size": "large", "first epoch time": 20.00277328491211, "second epoch time": 19.96966004371643})";

std::string refusal(const std::string& text) {
  return lockstep::testing::message_of<DataError>([&] { parse_results(text, "FILE"); });
}

TEST(ResultsFile, ReadsTheNotebooksLines) {
  const auto file = parse_results(std::string(kOldLines) + kNewLine + "\n", "FILE");
  ASSERT_EQ(file.lines.size(), 4U);
  EXPECT_EQ(file.lines[0].model, "mnist-small");
  EXPECT_EQ(file.lines[1].model, "mnist-large");
  EXPECT_EQ(file.lines[2].model, "mnist-small");
  EXPECT_EQ(file.lines[2].repeat, 4);
  EXPECT_EQ(file.lines[3].model, "mnist-large");
  EXPECT_EQ(file.lines[3].places, 2);
  EXPECT_EQ(file.lines[3].way, "dp");
  EXPECT_EQ(file.lines[0].way, "serial");
  EXPECT_DOUBLE_EQ(file.lines[3].second_seconds, 19.96966004371643);
  EXPECT_THAT(file.notes, ElementsAre(HasSubstr("without model_size")));
}

TEST(ResultsFile, WritesTheNotebooksKeysAndReadsThemAgain) {
  Sample sample = made_epochs("mnist-small", 128, 2, "ddp", 1, 2.5);
  sample.values["first_epoch_seconds"] = 3.25;
  sample.oversubscribed = true;
  const auto object = nlohmann::json::parse(results_line(sample));
  EXPECT_EQ(object["n_dataset_repeat"], 1);
  EXPECT_EQ(object["batch_size"], 128);
  EXPECT_EQ(object["n_gpus"], 2);
  EXPECT_EQ(object["model_size"], "small");
  EXPECT_EQ(object["first epoch time"], 3.25);
  EXPECT_EQ(object["second epoch time"], 2.5);
  const auto file = parse_results(results_line(sample) + "\n", "FILE");
  ASSERT_EQ(file.lines.size(), 1U);
  EXPECT_EQ(file.lines[0].model, "mnist-small");
  EXPECT_EQ(file.lines[0].way, "ddp");
  EXPECT_DOUBLE_EQ(file.lines[0].first_seconds, 3.25);
  EXPECT_TRUE(file.lines[0].oversubscribed);
  EXPECT_FALSE(file.lines[0].extrapolated);
  EXPECT_TRUE(file.notes.empty());
}

TEST(ResultsFile, LeavesOutALineThatWasTorn) {
  const std::string torn = std::string(kNewLine) + "\n" + std::string(kNewLine).substr(0, 50);
  const auto file = parse_results(torn, "FILE");
  EXPECT_EQ(file.lines.size(), 1U);
  EXPECT_THAT(file.notes, ElementsAre(HasSubstr("FILE: line 2: incomplete")));
  EXPECT_EQ(parse_results(kNewLine, "FILE").lines.size(), 1U) << "whole, without a newline";
  EXPECT_THAT(refusal(torn + "\n" + kNewLine), HasSubstr("FILE: line 2"));
}

TEST(ResultsFile, NamesLineAndKeyOfWhatIsWrong) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = kNewLine;
    text.replace(text.find(from), from.size(), to);
    return refusal("\n" + text + "\n");
  };
  EXPECT_THAT(
      with("\"n_gpus\"", "\"gpus\""), ContainsRegex("FILE: line 2: .?n_gpus.? must be there"));
  EXPECT_THAT(with("128", "0"), ContainsRegex("batch_size.? must be a whole number from 1"));
  EXPECT_THAT(with("128", "1.5"), HasSubstr("batch_size"));
  EXPECT_THAT(with("20.00277328491211", "-1"), HasSubstr("first epoch time"));
  EXPECT_THAT(with("19.96966004371643", "null"), HasSubstr("second epoch time"));
  EXPECT_THAT(with("\"large\"", "\"huge\""), HasSubstr("must be one of small, large: \"huge\""));
  EXPECT_THAT(refusal("[1]\n"), HasSubstr("line 1: it must be a JSON object"));
}

TEST(ResultsTable, SetsTheNotebooksAndOursInOneTable) {
  Sample ours = made_epochs("mnist-large", 128, 2, "dp", 1, 5.5);
  Sample again = made_epochs("mnist-large", 128, 2, "dp", 2, 6.5);
  Sample ddp = made_epochs("mnist-large", 128, 2, "ddp", 1, 4.5);
  ddp.values["epoch_share"] = 0.5;
  const std::string lines =
      results_line(ours) + "\n" + results_line(again) + "\n" + results_line(ddp) + "\n";
  const auto table =
      results_table({{"theirs", parse_results(std::string(kOldLines) + kNewLine, "theirs")},
          {"ours", parse_results(lines, "ours")}});
  ASSERT_EQ(table.rows.size(), 5U);
  using Row = std::vector<std::string>;
  EXPECT_EQ(table.rows[0],
      (Row{"mnist-small", "1", "128", "1", "serial", "9.39", "9.45", "-", "-", "-"}));
  EXPECT_EQ(table.rows[4],
      (Row{"mnist-large", "1", "128", "2", "dp", "20.0", "20.0", "7.00", "6.00", "-"}));
  EXPECT_EQ(table.rows[3][8], "4.50");
  EXPECT_EQ(table.rows[3][9], "ours: extrapolated");
  EXPECT_THAT(page::to_text(table), HasSubstr("theirs second [s]"));
}

TEST(PublishedEpochs, AreThoseOfTheNotebooksLines) {
  for (const ResultsLine& line : parse_results(std::string(kOldLines) + kNewLine, "FILE").lines) {
    const auto* published = find_published(line.model, line.repeat, line.batch, line.places);
    ASSERT_NE(published, nullptr);
    EXPECT_NEAR(published->first_seconds, line.first_seconds, 6e-4);
    EXPECT_NEAR(published->second_seconds.value(), line.second_seconds, 6e-4);
  }
  EXPECT_EQ(find_published("mnist-small", 8, 128, 1), nullptr);
}

}  // namespace
}  // namespace lockstep::bench::data_parallel
