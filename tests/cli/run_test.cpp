#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <stdlib.h>
#include <string>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/cli/train/train_launch.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

/// Sets a variable for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

std::string run_refusal(const std::vector<std::string>& arguments) {
  return testing::message_of<InvalidArgument>([&] { parse_run(arguments); });
}

TEST(RunFlags, DefaultsAreTorchruns) {
  const auto options = parse_run({"./hello", "--nnodes", "7"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->program, "./hello");
  EXPECT_THAT(options->arguments, ElementsAre("--nnodes", "7"));
  EXPECT_EQ(options->workers, 1);
  EXPECT_EQ(options->nodes, 1);
  EXPECT_EQ(options->master_address, "127.0.0.1");
  EXPECT_EQ(options->master_port, 0);
  EXPECT_EQ(options->run_id, "none");
  EXPECT_TRUE(options->pin);
  EXPECT_EQ(options->grace_period, std::chrono::seconds(30));
  EXPECT_THAT(options->signals, ElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT));
}

// A rank that a stop meets before its main() would end by the signal, and the run with it.
TEST(RunFlags, OurOwnTrainIsStartedWithStopsHeld) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_THAT(parse_run({self, "train"})->held_signals, ElementsAre(SIGTERM, SIGINT, SIGUSR1));
  EXPECT_TRUE(parse_run({self, "data"})->held_signals.empty());
  EXPECT_TRUE(parse_run({self})->held_signals.empty());
  EXPECT_TRUE(parse_run({"/bin/true", "train"})->held_signals.empty());
}

/// The second of two nodes on which Slurm has started one launcher each.
struct SecondOfTwoNodes {
  Variable job{"SLURM_JOB_ID", "71"}, task{"SLURM_PROCID", "1"}, tasks{"SLURM_STEP_NUM_TASKS", "2"};
  Variable node{"SLURM_NODEID", "1"}, nodes{"SLURM_STEP_NUM_NODES", "2"};
  Variable counts{"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}, list{"SLURM_STEP_NODELIST", "n[5,8]"};
  Variable step{"SLURM_STEP_ID", "3"};
};

TEST(RunFlags, SlurmSaysWhatNobodyElseSays) {
  const SecondOfTwoNodes slurm;
  const auto options = parse_run({"x"});
  EXPECT_EQ(options->nodes, 2);
  EXPECT_EQ(options->node_rank, 1);
  EXPECT_EQ(options->master_address, "n5");
  EXPECT_EQ(options->master_port, 15071);
  EXPECT_EQ(options->run_id, "slurm-71.3");
  EXPECT_EQ(parse_run({"--rdzv-id", "mine", "x"})->run_id, "mine");
  EXPECT_EQ(parse_run({"--master-addr", "a", "--master-port", "5", "x"})->master_address, "a");
  EXPECT_EQ(parse_run({"--master-port", "5", "x"})->master_port, 5);
  EXPECT_EQ(parse_run({"--rdzv-endpoint", "a:6", "x"})->master_address, "a");
  EXPECT_EQ(parse_run({"--rdzv-endpoint", "a:6", "x"})->master_port, 6);
  EXPECT_EQ(parse_run({"--nnodes", "2", "x"})->node_rank, 1) << "Slurm agrees";
}

TEST(RunFlags, FlagsAndVariablesWinOverSlurm) {
  const SecondOfTwoNodes slurm;
  for (const auto& words :
      {std::vector<std::string>{"--nnodes", "1", "x"}, {"--standalone", "x"}}) {
    EXPECT_EQ(parse_run(words)->nodes, 1);
    EXPECT_EQ(parse_run(words)->node_rank, 0);
    EXPECT_EQ(parse_run(words)->master_address, "127.0.0.1");
  }
  EXPECT_THAT(run_refusal({"--nnodes", "3", "x"}), HasSubstr("--master-addr"));
  const Variable nodes("PET_NNODES", "4"), rank("PET_NODE_RANK", "2"),
      address("PET_MASTER_ADDR", "b");
  EXPECT_EQ(parse_run({"x"})->nodes, 4);
  EXPECT_EQ(parse_run({"x"})->node_rank, 2);
  EXPECT_EQ(parse_run({"x"})->master_address, "b");
}

TEST(RunFlags, SlurmsRestartsCount) {
  const Variable restarts("SLURM_RESTART_COUNT", "2");
  EXPECT_EQ(parse_run({"x"})->earlier_restarts, 2);
  const Variable ours("TORCHELASTIC_RESTART_COUNT", "1");
  EXPECT_EQ(parse_run({"x"})->earlier_restarts, 1);
}

TEST(RunFlags, VariablesAreDefaultsAndTheCommandLineWins) {
  const Variable workers("PET_NPROC_PER_NODE", "3");
  const Variable nodes("PET_NNODES", "2");
  const Variable rank("PET_NODE_RANK", "1");
  const Variable address("PET_MASTER_ADDR", "node0");
  const Variable port("PET_MASTER_PORT", "1234");
  const auto options = parse_run({"x"});
  EXPECT_EQ(options->workers, 3);
  EXPECT_EQ(options->nodes, 2);
  EXPECT_EQ(options->node_rank, 1);
  EXPECT_EQ(options->master_address, "node0");
  EXPECT_EQ(options->master_port, 1234);
  EXPECT_EQ(parse_run({"--nproc-per-node", "5", "x"})->workers, 5);
  EXPECT_EQ(parse_run({"--standalone", "x"})->nodes, 1);
  EXPECT_EQ(parse_run({"--standalone", "x"})->master_port, 0);
}

TEST(RunFlags, RefuseWhatWouldBeIgnored) {
  EXPECT_THAT(run_refusal({"--standalone", "--nnodes", "2", "x"}), HasSubstr("--standalone"));
  EXPECT_THAT(run_refusal({"--standalone", "--node-rank", "1", "x"}), HasSubstr("--node-rank"));
  EXPECT_THAT(run_refusal({"--rdzv-secret-file", "f", "x"}), HasSubstr("--rdzv-secret-file"));
  EXPECT_THAT(run_refusal({"--rdzv-secret-file", "f", "--nnodes", "2", "--master-addr", "a", "x"}),
      HasSubstr("with static nothing is secret"));
}

TEST(RunFlags, AnEndpointIsAddressAndPort) {
  const auto options = parse_run({"--nnodes", "2", "--rdzv-endpoint", "node0:1234", "x"});
  EXPECT_EQ(options->master_address, "node0");
  EXPECT_EQ(options->master_port, 1234);
  const auto usual = parse_run({"--nnodes", "2", "--rdzv-endpoint", "node0", "x"});
  EXPECT_EQ(usual->master_port, 29500);
  EXPECT_EQ(parse_run({"--nnodes", "2", "--master-addr", "a", "x"})->master_port, 29500);
}

launch::RendezvousOptions meeting_of(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--rdzv-endpoint", "node0", "x"});
  return parse_run(flags)->rendezvous.value_or(launch::RendezvousOptions{.host = "none"});
}

TEST(RunFlags, NodesMayFindEachOther) {
  const auto fixed = meeting_of({"--nnodes", "3", "--rdzv-backend", "c10d"});
  EXPECT_EQ(fixed.host, "node0");
  EXPECT_EQ(fixed.port, 29400);
  EXPECT_EQ(fixed.least_nodes, 3);
  EXPECT_EQ(fixed.most_nodes, 3);
  const auto range = meeting_of({"--nnodes", "2:4", "--local-addr", "10.0.0.1", "--insecure"});
  EXPECT_EQ(range.least_nodes, 2);
  EXPECT_EQ(range.most_nodes, 4);
  EXPECT_EQ(range.local_address, "10.0.0.1");
  EXPECT_TRUE(range.insecure);
  EXPECT_EQ(meeting_of({"--nnodes", "2"}).host, "none") << "they have numbers";
  EXPECT_FALSE(parse_run({"--rdzv-backend", "c10d", "x"})->rendezvous) << "one needs no other";
  EXPECT_EQ(meeting_of({"--nnodes", "1:1"}).host, "none");
  EXPECT_FALSE(parse_run({"--standalone", "--nnodes", "1:2", "x"})->rendezvous);
  EXPECT_EQ(parse_run({"--nnodes", "2", "--rdzv-backend", "lockstep", "--master-addr", "node1",
                          "--master-port", "77", "x"})
                ->rendezvous->port,
      77);
  EXPECT_EQ(parse_run({"--nnodes", "2", "--rdzv-endpoint", "node0", "--rdzv-backend", "lockstep",
                          "--max-restarts", "3", "x"})
                ->max_restarts,
      3);
}

TEST(RunFlags, SettingsOfTheMeeting) {
  using std::chrono::milliseconds;
  const auto meeting = meeting_of({"--nnodes", "1:2", "--rdzv-conf",
      "join_timeout=5,last_call_timeout=0.5,keep_alive_interval=2,is_host=false,secret_file=/s"});
  EXPECT_EQ(meeting.join_timeout, milliseconds(5000));
  EXPECT_EQ(meeting.last_call, milliseconds(500));
  EXPECT_EQ(meeting.beat, milliseconds(2000));
  EXPECT_EQ(meeting.dead_after, milliseconds(50'000)) << "25 beats";
  EXPECT_EQ(meeting.serves, false);
  EXPECT_EQ(meeting.secret_file, "/s");
  const Variable settings("PET_RDZV_CONF", "keep_alive_max_attempt=3");
  EXPECT_EQ(meeting_of({"--nnodes", "1:2"}).dead_after, milliseconds(600));
  const auto refusal = [](const std::string& setting) {
    return run_refusal({"--nnodes", "1:2", "--rdzv-endpoint", "a", "--rdzv-conf", setting, "x"});
  };
  EXPECT_THAT(refusal("join_timeot=5"), HasSubstr("did you mean join_timeout?"));
  EXPECT_THAT(refusal("join_timeout"), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(refusal("join_timeout=soon"), HasSubstr("must be a number of seconds: soon"));
  EXPECT_THAT(refusal("is_host=perhaps"), HasSubstr("must be true or false"));
  EXPECT_THAT(refusal("keep_alive_interval=0"), HasSubstr("above 0"));
  EXPECT_THAT(refusal("keep_alive_max_attempt=1"), HasSubstr("at least 2"));
  EXPECT_THAT(run_refusal({"--nnodes", "3:2", "--rdzv-endpoint", "a", "x"}), HasSubstr("MIN:MAX"));
  EXPECT_THAT(run_refusal({"--nnodes", "0:2", "--rdzv-endpoint", "a", "x"}), HasSubstr("MIN:MAX"));
}

TEST(RunFlags, RefuseAndSuggest) {
  EXPECT_THAT(
      run_refusal({"--nproc-per-nod", "2", "x"}), HasSubstr("did you mean --nproc-per-node?"));
  EXPECT_THAT(run_refusal({"--log_dri=x", "x"}), HasSubstr("did you mean --log-dir?"));
  EXPECT_THAT(run_refusal({"--nproc-per-node", "many", "x"}), HasSubstr("--nproc-per-node"));
  EXPECT_THAT(run_refusal({"--nproc-per-node"}), HasSubstr("--nproc-per-node"));
  EXPECT_THAT(run_refusal({"--nnodes", "1:2", "x"}), HasSubstr("--rdzv-endpoint"));
  EXPECT_THAT(run_refusal({"--rdzv-backend", "etcd", "x"}), HasSubstr("lockstep or c10d"));
  EXPECT_THAT(run_refusal({"--rdzv-backend", "static", "--nnodes", "1:2", "x"}),
      HasSubstr("needs --rdzv-backend lockstep"));
  EXPECT_THAT(run_refusal({"--nnodes", "2", "x"}), HasSubstr("--master-addr"));
  EXPECT_THAT(run_refusal({"--signals-to-handle", "SIGKILL", "x"}), HasSubstr("SIGKILL"));
  EXPECT_THAT(run_refusal({"--tee", "0:1,", "x"}), HasSubstr("--tee"));
  EXPECT_THAT(run_refusal({"--local-ranks-filter", "a", "x"}), HasSubstr("--local-ranks-filter"));
  EXPECT_THAT(run_refusal({}), HasSubstr("no program given"));
}

TEST(RunFlags, RestartNothingByDefault) {
  EXPECT_EQ(parse_run({"x"})->max_restarts, 0);
  EXPECT_EQ(parse_run({"--max_restarts", "7", "x"})->max_restarts, 7);
  EXPECT_FALSE(parse_run({"x"})->lockstep_codes);
}

TEST(RunFlags, ScriptsAndModulesAreRunByPython) {
  const auto script = parse_run({"-np", "2", "train.py", "-m", "3"});
  EXPECT_EQ(script->program, "python3");
  EXPECT_THAT(script->arguments, ElementsAre("train.py", "-m", "3"));
  const auto module = parse_run({"-m", "nets.train", "--epochs"});
  EXPECT_EQ(module->program, "python3");
  EXPECT_THAT(module->arguments, ElementsAre("-m", "nets.train", "--epochs"));
  EXPECT_EQ(parse_run({"--no-python", "./train.py"})->program, "./train.py");
  EXPECT_THAT(run_refusal({"--no-python", "-m", "train"}), HasSubstr("there is no Python"));
  for (const Words& program :
      {Words{"train.py"}, {"-m", "train"}, {"/usr/bin/python3", "train.py"}}) {
    Words all{"--spares"};
    all.insert(all.end(), program.begin(), program.end());
    EXPECT_THAT(run_refusal(all), HasSubstr("does not wait for a rank"));
  }
  EXPECT_TRUE(parse_run({"--spares", "./train"})->spares);
  const Variable python("PYTHON_EXEC", "/opt/python");
  EXPECT_EQ(parse_run({"train.py"})->program, "/opt/python");
  EXPECT_EQ(parse_run({"./train"})->program, "./train");
}

TEST(RunFlags, HelpFitsIntoAHundredColumns) {
  EXPECT_FALSE(parse_run({"--help"}));
  EXPECT_TRUE(parse_run({"x", "--help"})) << "that is for the program";
  std::istringstream lines(run_help());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

TEST(TrainLaunch, TakesOutWhatConcernsTheStart) {
  const auto plan =
      parse_train_launch({"--model", "toy", "--nproc_per_node=3", "--no-pin", "--json"});
  EXPECT_EQ(plan.options.workers, 3);
  EXPECT_FALSE(plan.options.pin);
  EXPECT_TRUE(plan.options.output.first_inherits);
  EXPECT_THAT(plan.options.output.shown_ranks, ElementsAre(0));
  EXPECT_THAT(plan.rest, ElementsAre("--model", "toy", "--json"));
  EXPECT_THAT(parse_train_launch({"--lr_scale=none", "-np", "2", "-b", "8"}).rest,
      ElementsAre("--lr_scale=none", "-b", "8"));
}

TEST(TrainLaunch, StartsOneRankByDefaultAndForHelp) {
  EXPECT_EQ(parse_train_launch({}).options.workers, 1);
  const launch::Processors host{.gpus = 2, .cores = 3};
  EXPECT_EQ(parse_train_launch({"-np", "auto"}, host).options.workers, 2);
  EXPECT_EQ(parse_train_launch({"-np", "auto", "--device", "cpu"}, host).options.workers, 3);
  EXPECT_EQ(parse_train_launch({"-np", "auto", "--device=cuda"}, host).options.workers, 2);
  EXPECT_TRUE(parse_train_launch({}).options.pin);
  EXPECT_TRUE(parse_train_launch({"--nproc-per-node", "4", "--help"}).given.asks_help);
  EXPECT_THROW(parse_train_launch({"--nproc-per-node", "x"}), InvalidArgument);
  EXPECT_THROW(parse_train_launch({"--log-dir", "x"}), InvalidArgument);
  for (const char* bad : {"-1", "nan", "99999999999999999999", "1000001"})
    EXPECT_THROW(parse_train_launch({"--max-restarts", bad}), InvalidArgument) << bad;
  for (const char* bad : {"-1", "nan", "inf", "1e7", "x"})
    EXPECT_THROW(parse_train_launch({"--grace-period", bad}), InvalidArgument) << bad;
  EXPECT_THROW(parse_train_launch({"--bach-size", "3"}), InvalidArgument);
}

TEST(HangTimeout, IsOneFlagOfBothVerbs) {
  const auto of_run = [](const char* time) {
    return parse_run({"--hang-timeout", time, "./hello"})->hang_timeout;
  };
  const auto of_train = [](const char* time) {
    return parse_train_launch({"--hang-timeout", time});
  };
  EXPECT_EQ(parse_run({"./hello"})->hang_timeout, std::chrono::minutes(2));
  EXPECT_EQ(parse_train_launch({}).options.hang_timeout, std::chrono::minutes(2));
  EXPECT_EQ(of_run("0").count(), 0);
  EXPECT_EQ(of_run("90"), std::chrono::seconds(90));
  EXPECT_EQ(of_train("1m30s").options.hang_timeout, std::chrono::seconds(90));
  EXPECT_THAT(of_train("5m").rest, ::testing::IsEmpty()) << "no rank sees it";
  EXPECT_TRUE(of_train("5m").needs_a_launcher()) << "which watches even one rank";
  EXPECT_FALSE(parse_train_launch({}).needs_a_launcher());
  for (const char* bad : {"-1", "x", "0.001", "1e9"}) {
    EXPECT_THROW(of_run(bad), InvalidArgument) << bad;
    EXPECT_THROW(of_train(bad), InvalidArgument) << bad;
  }
}

TEST(TrainLaunch, RestartsSeveralRanksThreeTimesAndOneOnlyWhenAsked) {
  const auto restarts = [](const std::vector<std::string>& arguments) {
    return parse_train_launch(arguments).options.max_restarts;
  };
  EXPECT_EQ(restarts({}), 0);
  EXPECT_EQ(restarts({"--nproc-per-node", "2"}), 3);
  EXPECT_EQ(restarts({"--nproc-per-node", "2", "--max-restarts", "0"}), 0);
  EXPECT_EQ(restarts({"--max-restarts", "5"}), 5);
  EXPECT_FALSE(parse_train_launch({}).needs_a_launcher());
  EXPECT_TRUE(parse_train_launch({"--max-restarts", "5"}).needs_a_launcher());
  EXPECT_TRUE(parse_train_launch({"-np", "2", "--max-restarts", "0"}).needs_a_launcher());
  EXPECT_THAT(parse_train_launch({"--max-restarts", "5"}).rest, ElementsAre());
  EXPECT_TRUE(parse_train_launch({}).options.lockstep_codes);
}

class AutoParallel : public ::testing::Test {
 protected:
  void began(const std::string& config, int ranks, const std::string& backend) const {
    std::ofstream(folder_.file("config.toml")) << config;
    std::ofstream(folder_.file("env.json"))
        << "{\"world_size\":" << ranks << ",\"backend\":\"" << backend << "\"}";
  }

  Words resumed(const Words& more = {}) const {
    Words words{"--parallel", "auto", "--output", folder_.str(), "--resume", "auto"};
    words.insert(words.end(), more.begin(), more.end());
    Words found = resolve_auto_parallel(words);
    found.erase(found.begin(), found.begin() + 4);
    return found;
  }

  std::string refusal(const Words& more) const {
    return testing::message_of<InvalidArgument>([&] { resumed(more); });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(AutoParallel, KeepsTheWayOfARunThatIsContinued) {
  began("parallel = \"serial\"\nbatch-size = 8\n", 1, "single");
  EXPECT_THAT(resumed({"-b", "8"}), ElementsAre("--batch-size", "8"));
  began("parallel = \"ddp\"\nbatch-size = 8\n", 2, "shm");
  EXPECT_THAT(resumed({"--batch-size=16", "--lr", "0.1", "--places", "4"}),
      ElementsAre(
          "--lr", "0.1", "--batch-size", "8", "--parallel", "ddp", "--nproc-per-node", "2"));
  began("parallel = \"dp\"\nplaces = 2\nbatch-size = 8\n", 1, "single");
  EXPECT_THAT(
      resumed({"-b", "16"}), ElementsAre("--batch-size", "8", "--parallel", "dp", "--places", "2"));
  began("parallel = \"pp\"\nplaces = 2\nchunks = 4\nschedule = \"gpipe\"\nbatch-size = 128\n", 1,
      "single");
  EXPECT_THAT(resumed(), ElementsAre("--batch-size", "128", "--parallel", "pp", "--places", "2",
                             "--chunks", "4", "--schedule", "gpipe"));
}

TEST_F(AutoParallel, RefusesWhatThatWayContradicts) {
  began("parallel = \"ddp\"\nbatch-size = 8\n", 2, "shm");
  EXPECT_THAT(refusal({"-b", "8"}), AllOf(HasSubstr("takes 16 samples"), HasSubstr("is 8")));
  EXPECT_THAT(refusal({"-b", "16", "--places", "1"}), HasSubstr("spread over 2 places"));
}

TEST_F(AutoParallel, RefusesWhatItWouldChooseItself) {
  for (const char* flag : {"--stages", "--stages-per-place", "--chunks"})
    EXPECT_THAT(refusal({flag, "2"}), HasSubstr(flag));
  EXPECT_THAT(refusal({"--schedule", "gpipe"}), HasSubstr("--schedule is among what"));
  EXPECT_THAT(refusal({"--balance", "size"}), HasSubstr("--balance"));
  EXPECT_THAT(refusal({"--lr-scale", "linear"}), HasSubstr("--lr-scale"));
}

}  // namespace
}  // namespace lockstep::cli
