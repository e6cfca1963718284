// Runs `lockstep plan`: it trains to measure, and answers of a file alone.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/process/command.h"

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Plan : public ::testing::Test {
 protected:
  static Ended plan(const std::string& flags) { return run_command(words("plan " + flags)); }

  static nlohmann::json last_object(const Ended& ended) {
    const auto end = ended.out.find_last_not_of('\n');
    const auto begin = ended.out.rfind('\n', end);
    return nlohmann::json::parse(ended.out.substr(begin + 1, end - begin));
  }

  std::string profile() const { return folder_.file("toy.json"); }

  TemporaryFolder folder_;
};

TEST_F(Plan, MeasuresAModelAndThenAnswersWithoutTraining) {
  const Ended measured = plan("--measure --model mnist-small --measure-batches 16,4 --save " +
                              profile() + " -- --opt adamw")
                             .with_code(0);
  EXPECT_THAT(measured.err, HasSubstr("by serial, batches of 4, again: "));
  const auto trainings = count_of("measuring mnist-small by ", measured.err);
  EXPECT_THAT(
      measured.err, HasSubstr(concat("by serial, batches of 4: 1 of ", trainings, "; about ")));
  EXPECT_EQ(count_of(concat(" of ", trainings, "; about "), measured.err), trainings);
  const auto costs = nlohmann::json::parse(contents(profile()));
  EXPECT_EQ(costs.at("layers").at(0).at("forward").size(), 2u) << "a point for each batch";
  const bool has_pairs = usable_cpu_count() > 1;
  EXPECT_EQ(costs.at("company").at("compute").size(), has_pairs ? 2u : 1u);
  EXPECT_EQ(costs.at("overheads").at("hand_over").size(), has_pairs ? 2u : 0u);
  EXPECT_GT(costs.at("flops").get<double>(), 1e6);
  if (has_pairs) {
    EXPECT_THAT(measured.err, HasSubstr("by ddp of 4 ranks on two places, batches of "));
  }

  const std::string short_question = "--profile " + profile() + " --batch 16 --ways serial ";
  plan(short_question + "--model mnist-small --precision 32").with_code(0);
  EXPECT_THAT(costs.at("training").at("flags").get<std::vector<std::string>>(),
      ::testing::ElementsAre("--opt", "adamw"));
  auto others = costs;
  others["training"]["flags"] = {"--opt", "nothing"};
  std::ofstream(folder_.file("others.json")) << others;
  EXPECT_THAT(
      plan("--profile " + folder_.file("others.json") + " --batch 16 --confirm 1").with_code(2).err,
      HasSubstr("--opt"))
      << "what is confirmed has the flags of the profile";
  EXPECT_THAT(plan(short_question + "--model mnist-large").with_code(2).err,
      HasSubstr(R"( is of "mnist-small", not of --model "mnist-large")"));
  EXPECT_THAT(plan(short_question + "--precision bf16-mixed").with_code(2).err,
      HasSubstr(R"( is of "32", not of --precision "bf16-mixed")"));

  const std::string page = folder_.file("plan.html");
  const Ended answered = plan("--profile " + profile() +
                              " --batch 16 --nodes 1,4 --places 1,2 --link 1Gbit,50us "
                              "--ways serial,ddp,pp --chunks 2 --json --output " +
                              page);
  ASSERT_EQ(answered.code(), 0) << answered.err;
  EXPECT_THAT(answered.out, HasSubstr("Take "));
  EXPECT_THAT(contents(page), HasSubstr("One step of"));
  EXPECT_THAT(contents(page), HasSubstr("lockstep plan --profile " + profile()))
      << "what was asked";
  const auto choices = last_object(answered).at("choices");
  EXPECT_EQ(std::count_if(choices.begin(), choices.end(),
                [](const auto& choice) { return choice.at("places") == 8; }),
      1)
      << "ddp on all of four nodes";
}

TEST_F(Plan, ConfirmsAndTrainsWithTheFastest) {
  const std::string run = folder_.file("run");
  const std::string flags =
      " --model mnist-small --data mock:constant --batch-size 8 --places 2 --max-steps 6 "
      "--epochs 6 --snapshot-interval 3steps --val-interval never --output " +
      run;
  const Ended trained = train("--parallel auto" + flags).with_code(0);
  EXPECT_THAT(trained.err, HasSubstr("Trained for some steps on this machine"));
  EXPECT_THAT(trained.err, Not(HasSubstr("again"))) << "one round is confirmed";
  EXPECT_THAT(trained.err, HasSubstr("lockstep: takes "));
  EXPECT_THAT(contents(run + "/summary.json"), HasSubstr("\"steps\":6"));

  const std::string way = nlohmann::json::parse(contents(run + "/summary.json")).at("parallel");
  EXPECT_THAT(train("--parallel=auto" + flags + " --resume auto --max-steps 9").with_code(0).err,
      Not(HasSubstr("measuring")));
  const auto after = nlohmann::json::parse(contents(run + "/summary.json"));
  EXPECT_EQ(after.at("steps"), 9);
  EXPECT_EQ(after.at("parallel"), way) << "a run keeps its way";
}

TEST_F(Plan, LeavesNothingWhenItIsStopped) {
  Command command(
      words("plan --measure --model mnist-small --measure-batches 16 --save " + profile()),
      {"TMPDIR=" + folder_.str()});
  ASSERT_TRUE(command.wait_until(
      [&] { return processes_with_variable("TMPDIR=" + folder_.str()).size() > 2; }));
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait().code(), 128 + SIGTERM);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.str()));
  EXPECT_THAT(processes_with_variable("TMPDIR=" + folder_.str()), IsEmpty());
}

TEST_F(Plan, KeepsWhatItHasMeasuredWhenItIsStopped) {
  Command command(
      words("plan --measure --model mnist-small --measure-batches 64,16 --save " + profile()));
  ASSERT_TRUE(command.wait_until([&] { return std::filesystem::exists(profile()); }));
  command.signal(SIGINT);
  const Ended stopped = command.wait();
  EXPECT_EQ(stopped.code(), 128 + SIGINT);
  EXPECT_THAT(stopped.err, HasSubstr("stopped; " + profile() + " has what was measured so far"));
  const Ended asked = plan("--profile " + profile() + " --batch 16 --places 1").with_code(0);
  EXPECT_THAT(asked.out, HasSubstr("Take serial"));
}

TEST_F(Plan, SaysWhatIsWrong) {
  EXPECT_THAT(plan("--model mnist-smal").with_code(2).err, HasSubstr("mnist-small"));
  EXPECT_EQ(plan("--profile " + profile()).code(), 3);
  const Ended flags = plan("--model mnist-small --measure-batches 4 -- --opt nothing").with_code(2);
  EXPECT_THAT(flags.err, HasSubstr("--opt"));
  EXPECT_THAT(train("--parallel auto --comm-hook bf16").with_code(2).err,
      HasSubstr("--comm-hook is for some ways only, and"));
  EXPECT_EQ(plan("--train -- --stages 2").code(), 2) << "it would choose that";
}

}  // namespace
}  // namespace lockstep::testing
