// Runs `lockstep bench data-parallel` on a set of a few images: whole, stopped, with a rank killed.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// Returns the processes of rank 1 whose command line has this text.
std::vector<pid_t> second_ranks(const std::string& text) {
  std::vector<pid_t> ranks = processes_with(text);
  std::erase_if(ranks, [](pid_t rank) { return variable_of(rank, "RANK") != "1"; });
  return ranks;
}

constexpr std::size_t kCells = 13;  // of the quick grid: two batches of the small net, one large

class Bench : public ::testing::Test {
 protected:
  std::string study(const std::string& flags = "") const {
    return "bench data-parallel --rounds 1 " + set_.flag() + " --output " + output() + " " + flags;
  }

  static Ended bench(const std::string& line) { return run_command(words(line)); }

  std::string output() const { return folder_.file("out"); }
  std::string file(const std::string& name) const { return contents(output() + "/" + name); }

  std::vector<Json> samples() const { return json_lines(output() + "/samples.jsonl"); }

  IdxFiles set_{64, 32};
  TemporaryFolder folder_;
};

TEST_F(Bench, MeasuresEveryCellAndReportsIt) {
  const Ended ended = bench(study("--json")).with_code(0);
  const auto measured = samples();
  ASSERT_EQ(measured.size(), kCells);
  for (const Json& sample : measured) {
    EXPECT_GT(sample["values"]["second_epoch_seconds"], 0) << sample;
    EXPECT_EQ(sample["values"]["epoch_share"], 1) << "64 images are less than the limit";
  }
  const std::string report = "report.html";
  EXPECT_THAT(file(report), HasSubstr("</html>"));
  EXPECT_THAT(file("report.md"), HasSubstr("How many times as fast as one place"));
  EXPECT_THAT(ended.out, HasSubstr("DataParallel or DistributedDataParallel"));
  EXPECT_THAT(ended.out, HasSubstr("One round was measured"));
  EXPECT_TRUE(
      std::filesystem::exists(output() + "/figures/data-parallel-speed-up-mnist-small-r1.svg"));
  EXPECT_TRUE(Json::parse(file("environment.json")).contains("processor"));
  EXPECT_EQ(count_of("\n", file("pytorch_results.txt")), std::ptrdiff_t{kCells});
  const std::string last = ended.out.substr(ended.out.rfind('\n', ended.out.size() - 2) + 1);
  EXPECT_EQ(Json::parse(last)["studies"][0]["cells"].size(), kCells);
  // Reported again from the samples alone.
  std::filesystem::remove(output() + "/" + report);
  bench("report " + output()).with_code(0);
  EXPECT_THAT(file(report), HasSubstr("</html>"));
  const Ended side = bench("report " + output() + "/pytorch_results.txt");
  EXPECT_THAT(side.out, HasSubstr("Epoch times side by side"));
}

TEST_F(Bench, GoesOnWhereItWasStopped) {
  Command run(words(study()));
  run.wait_until([&] { return count_of("\n", contents_so_far(output() + "/samples.jsonl")) > 1; });
  run.signal(SIGINT);
  run.wait().with_code(128 + SIGINT);
  EXPECT_TRUE(processes_with(output() + "/runs").empty());
  const auto before = samples();
  ASSERT_LT(before.size(), kCells);
  EXPECT_THAT(file("report.md"), HasSubstr("have no number"));
  bench(study()).with_code(0);
  const auto after = samples();
  ASSERT_EQ(after.size(), kCells);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin())) << "nothing is made again";
  EXPECT_THAT(file("report.md"), Not(HasSubstr("have no number")));
  const Ended other = bench(study("--full")).with_code(2);
  EXPECT_THAT(other.err, HasSubstr("another grid: '--quick' there, '--full' now"));
}

TEST_F(Bench, ARankThatIsKilledIsOneCellsFailure) {
  Command run(words(study()));
  std::vector<pid_t> ranks;
  run.wait_until([&] {
    ranks = second_ranks(output() + "/runs/data-parallel/mnist-small-r1-b512-p2-ddp");
    return !ranks.empty();
  });
  for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
  const Ended ended = run.wait().with_code(1);
  const auto measured = samples();
  EXPECT_EQ(measured.size(), kCells) << "the rest goes on";
  const auto failed = std::count_if(measured.begin(), measured.end(), [](const Json& sample) {
    return sample.contains("failure") && sample["failure"].is_string() &&
           !sample["failure"].get<std::string>().empty();
  });
  EXPECT_EQ(failed, 1);
  EXPECT_THAT(ended.out, HasSubstr("SIGKILL"));
  EXPECT_THAT(file("report.html"), HasSubstr("SIGKILL"));
  EXPECT_THAT(ended.out, HasSubstr("1 of 13 cells have no number"));
}

TEST_F(Bench, ListsAndRefusesWithoutMeasuring) {
  const Ended list = bench("bench --list").with_code(0);
  EXPECT_THAT(list.out, HasSubstr("data-parallel"));
  const Ended cells = bench("bench data-parallel --full --list");
  EXPECT_THAT(cells.out, HasSubstr("data-parallel: 90 cells, 3 rounds"));
  EXPECT_THAT(cells.out, HasSubstr("lockstep train --model mnist-large"));
  const auto refusal = [&](const std::string& line) { return bench(line).with_code(2).err; };
  EXPECT_THAT(refusal("bench data-paralel"), HasSubstr("did you mean data-parallel?"));
  EXPECT_THAT(refusal("bench latency"), HasSubstr("there is no study latency"));
  EXPECT_THAT(refusal("bench"), HasSubstr("name a study"));
  EXPECT_THAT(refusal("bench data-parallel --quick --full"), HasSubstr("exclude"));
  EXPECT_THAT(refusal("bench data-parallel --data cifar10"), HasSubstr("--data"));
  EXPECT_THAT(refusal("bench data-parallel --rounds 0"), HasSubstr("--rounds"));
  const std::string failed = folder_.file("failed");
  EXPECT_EQ(bench("bench data-parallel --data mnist:/nowhere --output " + failed).code(), 3);
  EXPECT_FALSE(std::filesystem::exists(failed)) << "the next try may take the name";
  folder_.write("mine", {});
  EXPECT_THAT(refusal("bench data-parallel " + set_.flag() + " --output " + folder_.str()),
      HasSubstr("holds files already"));
  EXPECT_FALSE(std::filesystem::exists(output()));
}

}  // namespace
}  // namespace lockstep::testing
