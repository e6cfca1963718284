#include "bench/studies/bench_report.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/bench/studies/made_samples.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using data_parallel::made_epochs;
using ::testing::HasSubstr;
using ::testing::Not;

const BenchRequest kRequest{
    .studies = {"data-parallel"}, .options = {.full = true, .cores = 2, .data = {"fashion-mnist"}}};

// The command of a cell must be the study's, as the runner would have written it.
Sample with_command(Sample sample) {
  for (const Study& study : kRequest.make()) {
    for (const StudyCell& cell : study.cells) {
      if (cell.id == sample.cell) sample.command = cell.command;
    }
  }
  return sample;
}

class Report : public ::testing::Test {
 protected:
  Report() {
    write_request(folder_.path(), kRequest);
    for (int round = 1; round <= 2; ++round) {
      add(made_epochs("mnist-small", 128, 1, "serial", round, 4));
      add(made_epochs("mnist-small", 128, 2, "dp", round, 2.5));
      add(made_epochs("mnist-small", 128, 2, "ddp", round, 2));
    }
  }

  void add(const Sample& sample) const {
    std::ofstream(folder_.path() / "samples.jsonl", std::ios::app)
        << to_json(with_command(sample)) << '\n';
  }

  std::string text(const std::string& name) const {
    return lockstep::testing::contents(folder_.path() / name);
  }

  BenchReport write() const {
    const BenchReport report = read_bench_report(folder_.path());
    write_bench_report(report);
    return report;
  }

  void replace(const std::string& from, const std::string& to) const {
    std::string samples = text("samples.jsonl");
    const auto at = samples.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    samples.replace(at, from.size(), to);
    std::ofstream(folder_.path() / "samples.jsonl") << samples;
  }

  lockstep::testing::TemporaryFolder folder_;
};

constexpr const char* kSecondEpochs = "figures/data-parallel-second-epoch-mnist-small-r1.svg";

TEST_F(Report, OneNumberOfTheSamplesIsInTableMarkdownPageAndFigure) {
  const std::string table = bench_text(write());
  const std::string markdown = text("report.md"), html = text("report.html");
  const std::string figure = text(kSecondEpochs), results = text("pytorch_results.txt");
  const std::string json = bench_json(write());
  EXPECT_THAT(table, HasSubstr("2.50 to 2.50"));
  EXPECT_THAT(markdown, HasSubstr("2.50 to 2.50"));
  EXPECT_THAT(html, HasSubstr("2.50 to 2.50"));
  replace("\"second_epoch_seconds\":2.5", "\"second_epoch_seconds\":3.125");
  const std::string now = bench_text(write());
  EXPECT_THAT(now, HasSubstr("2.50 to 3.12"));
  EXPECT_THAT(text("report.md"), HasSubstr("2.50 to 3.12"));
  EXPECT_THAT(text("report.html"), HasSubstr("2.50 to 3.12"));
  EXPECT_THAT(text("report.html"), HasSubstr("<svg"));
  EXPECT_NE(text(kSecondEpochs), figure);
  EXPECT_NE(html.substr(0, html.find("<table")), text("report.html").substr(0, html.find("<table")))
      << "the conclusion";
  EXPECT_THAT(results, Not(HasSubstr("3.125")));
  EXPECT_THAT(text("pytorch_results.txt"), HasSubstr("\"second epoch time\":3.125"));
  EXPECT_NE(bench_json(write()), json);
}

TEST_F(Report, IsTheSameWhenNothingChanged) {
  write();
  const std::string html = text("report.html"), figure = text(kSecondEpochs);
  write();
  EXPECT_EQ(text("report.html"), html);
  EXPECT_EQ(text(kSecondEpochs), figure);
}

TEST_F(Report, CellsWithoutANumberSayWhy) {
  Sample failed = made_epochs("mnist-small", 256, 2, "dp", 1, 1);
  failed.values.clear();
  failed.failure = "ended by SIGKILL";
  failed.code = 137;
  add(failed);
  const BenchReport report = write();
  EXPECT_EQ(report.failures(), 1);
  EXPECT_THAT(bench_text(report), HasSubstr("ended by SIGKILL"));
  EXPECT_THAT(text("report.html"), HasSubstr("ended by SIGKILL"));
  EXPECT_THAT(text("pytorch_results.txt"), Not(HasSubstr("\"batch_size\":256")));
  const auto object = nlohmann::json::parse(bench_json(report));
  EXPECT_EQ(object["failures"], 1);
  for (const auto& cell : object["studies"][0]["cells"]) {
    EXPECT_EQ(cell["values"].empty(), cell["reason"].is_string()) << cell.dump();
  }
}

TEST_F(Report, ATornLastLineIsTold) {
  std::ofstream(folder_.path() / "samples.jsonl", std::ios::app) << R"({"v":1,"stu)";
  EXPECT_THAT(bench_text(write()), HasSubstr("samples.jsonl: line 7"));
}

TEST_F(Report, OfAFolderWithoutSamplesSaysThatNothingIsMeasured) {
  std::filesystem::remove(folder_.path() / "samples.jsonl");
  EXPECT_THAT(bench_text(write()), HasSubstr("90 of 90 cells have no number"));
  EXPECT_THAT(text("report.md"), HasSubstr("no sample yet"));
}

TEST_F(Report, RefusesAFolderThatIsNoBenchs) {
  std::filesystem::remove(folder_.path() / "bench.json");
  EXPECT_THROW(read_bench_report(folder_.path()), DataError);
  std::ofstream(folder_.path() / "bench.json") << R"({"v":2})";
  EXPECT_THROW(read_bench_report(folder_.path()), DataError);
  std::ofstream(folder_.path() / "bench.json") << R"({"v":1,"studies":["other"]})";
  EXPECT_THROW(read_bench_report(folder_.path()), DataError);
}

TEST_F(Report, SaysWithWhatItWasMeasured) {
  std::ofstream(folder_.path() / "environment.json")
      << R"({"processor":{"model":"Fast <1>","cores_usable":2},"build":{"libtorch":"2.15.0"}})";
  write();
  EXPECT_THAT(text("report.md"), HasSubstr("2.15.0"));
  EXPECT_THAT(text("report.html"), HasSubstr("Fast &lt;1&gt;"));
  std::ofstream(folder_.path() / "environment.json") << "[";
  EXPECT_THROW(read_bench_report(folder_.path()), DataError);
}

TEST(BenchRequest, GoesOnOnlyWithTheSame) {
  const lockstep::testing::TemporaryFolder folder;
  EXPECT_FALSE(read_request(folder.path()).has_value());
  write_request(folder.path(), kRequest);
  const auto before = read_request(folder.path()).value();
  EXPECT_EQ(before.options.data, std::vector<std::string>{"fashion-mnist"});
  BenchRequest now = kRequest;
  now.options.rounds = 7;
  check_continues(before, now);
  for (const auto& change : std::vector<std::function<void(BenchRequest&)>>{
           [](BenchRequest& request) { request.options.full = false; },
           [](BenchRequest& request) { request.options.cores = 4; },
           [](BenchRequest& request) { request.options.data = {"mnist:/x"}; },
           [](BenchRequest& request) { request.studies.clear(); }}) {
    now = kRequest;
    change(now);
    EXPECT_THROW(check_continues(before, now), InvalidArgument);
  }
}

}  // namespace
}  // namespace lockstep::bench
