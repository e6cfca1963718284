#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/cluster/node_list.h"
#include "lockstep/cluster/place.h"
#include "lockstep/cluster/route.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"

namespace lockstep::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

TEST(NodeList, ExpandsAsScontrolDoes) {
  EXPECT_THAT(expand_node_list("a"), ElementsAre("a"));
  EXPECT_THAT(expand_node_list("b,a.cluster.org"), ElementsAre("b", "a.cluster.org"));
  EXPECT_THAT(expand_node_list("a[01-04,7],b"), ElementsAre("a01", "a02", "a03", "a04", "a7", "b"));
  EXPECT_THAT(expand_node_list("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(expand_node_list("n[099-101]"), ElementsAre("n099", "n100", "n101"));
  EXPECT_THAT(expand_node_list("[1-2]-ib"), ElementsAre("1-ib", "2-ib"));
}

TEST(NodeList, OfSeveralRangesTheFirstVariesSlowest) {
  EXPECT_THAT(expand_node_list("r[1-2]n[1-3]"),
      ElementsAre("r1n1", "r1n2", "r1n3", "r2n1", "r2n2", "r2n3"));
  EXPECT_THAT(expand_node_list("r[1,3][0-1]x,z"), ElementsAre("r10x", "r11x", "r30x", "r31x", "z"));
}

TEST(NodeList, NamesThePlaceOfWhatItCannotRead) {
  const auto refusal = [](const std::string& text) {
    return testing::message_of<InvalidArgument>([&] { expand_node_list(text); });
  };
  EXPECT_EQ(refusal("a[3-1]"),
      "cluster: the list \"a[3-1]\" has a range that ends before it begins at byte 5");
  for (const char* text : {"", ",", "a,", ",a", "a,,b"})
    EXPECT_THAT(refusal(text), HasSubstr("needs a name"));
  for (const char* text : {"a[1", "a[1-2", "a[1 ]", "a[1[2]]"})
    EXPECT_THAT(refusal(text), HasSubstr("needs ]"));
  for (const char* text : {"a[", "a[]", "a[-1]", "a[1-]", "a[1,]", "a[x]"})
    EXPECT_THAT(refusal(text), HasSubstr("needs a number"));
  for (const char* text : {"a]", "a b", "a/b", "a$b", "(null)", "a\n"})
    EXPECT_THAT(refusal(text), HasSubstr("is of no host's name"));
}

TEST(NodeList, IsBounded) {
  const auto refusal = [](const std::string& text) {
    return testing::message_of<InvalidArgument>([&] { expand_node_list(text); });
  };
  EXPECT_EQ(expand_node_list("n[1-65536]").size(), kMostNodes);
  for (const char* text : {"n[1-65537]", "n[0-999999999]", "n[1-65536],a", "a[1-300]b[1-300]",
           "a[1-60000,1-60000]", "a[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]"})
    EXPECT_THAT(refusal(text), HasSubstr("more than 65536 hosts")) << text;
  EXPECT_THAT(refusal("n[1-9999999999]"), HasSubstr("too large"));
  EXPECT_THAT(refusal(std::string(300, 'a')), HasSubstr("more than 255 bytes"));
  EXPECT_THAT(refusal(std::string((1 << 20) + 1, 'a')), HasSubstr("longer than 1 MiB"));
}

TEST(TaskCounts, AreOneForEachNode) {
  EXPECT_THAT(expand_task_counts("4"), ElementsAre(4));
  EXPECT_THAT(expand_task_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  for (const char* text :
      {"", "2(", "2(x", "2(x3", "2x3", "2(3)", "x", "1,", "-1", "2(x99999)", "9999999"})
    EXPECT_THROW(expand_task_counts(text), InvalidArgument) << text;
}

// Places as they follow from variables; those of Slurm and Open MPI are what Debian's set.

Surroundings with(Variables variables, const Variables& more = {}) {
  for (const auto& [name, value] : more) variables[name] = value;
  return {.variables = std::move(variables), .process = 100};
}

/// Those of task 3 of `srun -N2 -n4 PROGRAM`, of which node 0 has three.
const Variables kStep{{"SLURM_JOB_ID", "71"}, {"SLURM_JOB_NAME", "train"},
    {"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}, {"SLURM_LOCALID", "0"},
    {"SLURM_NODEID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "3"}, {"SLURM_STEP_ID", "0"},
    {"SLURM_STEP_NODELIST", "host-[0-1]"}, {"SLURM_STEP_NUM_NODES", "2"},
    {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "3,1"}, {"SLURM_TASK_PID", "100"}};

/// Those of a batch script of four tasks on two nodes, which is no task of a step.
const Variables kBatch{{"SLURM_JOB_ID", "71"}, {"SLURM_JOB_NAME", "script"},
    {"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"},
    {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_TASK_PID", "100"}};

/// Those of rank 1 of `mpirun -n 2 PROGRAM`.
const Variables kMpirun{{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "1141309441"},
    {"PMIX_RANK", "1"}};

std::string rank_refusal(const Surroundings& here) {
  return testing::message_of<InvalidArgument>([&] { rank_place(here); });
}

std::string node_refusal(const Surroundings& here) {
  return testing::message_of<InvalidArgument>([&] { node_place(here); });
}

TEST(RankPlace, IsThatOfATaskOfSlurm) {
  const auto place = rank_place(with(kStep));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->size, 4);
  EXPECT_EQ(place->local_rank, 0);
  EXPECT_EQ(place->local_size, 1);
  EXPECT_EQ(place->master_address, "host-0");
  EXPECT_EQ(place->master_port, 15071);
  EXPECT_EQ(place->job, "slurm-71.0");
  EXPECT_EQ(rank_place(with(kStep, {{"SLURM_JOB_ID", "1234567"}}))->master_port, 15000 + 4567);
  EXPECT_EQ(rank_place(with(kStep, {{"SLURM_RESTART_COUNT", "2"}}))->restarts, 2);
  EXPECT_EQ(rank_place(with(kStep, {{"SLURM_CPUS_PER_TASK", "8"}}))->cpus, 8);
}

TEST(RankPlace, MeetsWhereTheUserSays) {
  const auto place =
      rank_place(with(kStep, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "2000"}}));
  EXPECT_EQ(place->master_address, "10.0.0.1");
  EXPECT_EQ(place->master_port, 2000);
  EXPECT_THAT(rank_refusal(with(kStep, {{"MASTER_PORT", "70000"}})), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(
      rank_refusal(with(kStep, {{"MASTER_ADDR", ""}})), HasSubstr("MASTER_ADDR is set, but empty"));
}

TEST(RankPlace, OnOneNodeMeetsOnItsLoopback) {
  const auto place = rank_place(with(kStep,
      {{"SLURM_NODEID", "0"}, {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NODELIST", "host-0"}}));
  EXPECT_EQ(place->local_size, 4);
  EXPECT_EQ(place->master_address, "127.0.0.1");
}

TEST(RankPlace, WithoutAListOfNodesIsWhereSrunWas) {
  Surroundings here = with(kStep);
  here.variables.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(rank_place(here)->master_address, "10.0.0.9");
}

TEST(RankPlace, OfABatchScriptIsAloneAndSaysSo) {
  EXPECT_FALSE(rank_place(with(kBatch)));
  EXPECT_THAT(tasks_left_out(with(kBatch)),
      HasSubstr("has 4 tasks, but srun has not started this process"));
  EXPECT_EQ(tasks_left_out(with(kBatch, {{"SLURM_NTASKS", "1"}})), "");
  EXPECT_EQ(tasks_left_out(with(kBatch, {{"RANK", "0"}})), "");
  EXPECT_EQ(tasks_left_out(with({})), "");
}

// In an interactive shell the variables are those of the shell, and left over for what it starts.
TEST(RankPlace, InAnInteractiveShellIsAloneAndSaysSo) {
  for (const Variables& shell : {Variables{{"SLURM_PTY_PORT", "4000"}, {"SLURM_TASK_PID", "7"}},
           Variables{{"SLURM_JOB_NAME", "bash"}, {"SLURM_TASK_PID", "7"}, {"SLURM_PROCID", "0"},
               {"SLURM_STEP_NUM_TASKS", "1"}}}) {
    EXPECT_FALSE(rank_place(with(kStep, shell)));
    EXPECT_THAT(tasks_left_out(with(kStep, shell)), HasSubstr("is interactive"));
  }
}

// `salloc`, then srun; and `srun -n 4 bash script`, whose job is called bash.
TEST(RankPlace, OfATaskInAnInteractiveJobIsTaken) {
  const auto rank_of = [](const Variables& more) {
    return rank_place(with(kStep, more)).value().rank;
  };
  EXPECT_EQ(rank_of({{"SLURM_JOB_NAME", "interactive"}}), 3);
  EXPECT_EQ(rank_of({{"SLURM_JOB_NAME", "bash"}, {"SLURM_TASK_PID", "7"}}), 3);
  EXPECT_EQ(rank_of({{"SLURM_PTY_PORT", "4000"}}), 3) << "itself the task";
  EXPECT_EQ(rank_of({{"SLURM_TASK_PID", "4000000"}}), 3) << "there are so many processes";
}

TEST(RankPlace, IsThatOfOpenMpi) {
  const auto place = rank_place(with(kMpirun));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->size, 2);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 2);
  EXPECT_EQ(place->master_address, "127.0.0.1");
  EXPECT_EQ(place->master_port, 15000 + 9441);
  const auto several = with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_THAT(rank_refusal(several), HasSubstr("Open MPI does not say on which host rank 0 runs"));
  EXPECT_THAT(rank_refusal(several), HasSubstr("-x MASTER_ADDR=HOST"));
  EXPECT_EQ(rank_place(with(several.variables, {{"MASTER_ADDR", "a"}}))->master_address, "a");
}

TEST(RankPlace, IsThatOfMpichAndMvapich) {
  const auto mpich = rank_place(with(
      {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}}));
  EXPECT_EQ(mpich->rank, 2);
  EXPECT_EQ(mpich->master_port, 29500);
  const auto mvapich = rank_place(with({{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"},
      {"MV2_COMM_WORLD_LOCAL_RANK", "0"}, {"MV2_COMM_WORLD_LOCAL_SIZE", "1"},
      {"MASTER_ADDR", "a"}}));
  EXPECT_EQ(mvapich->rank, 1);
  EXPECT_EQ(mvapich->local_size, 1);
}

TEST(RankPlace, IsThatOfLsfWithoutTheHostThatLaunches) {
  Surroundings here = with({{"JSM_NAMESPACE_RANK", "1"}, {"JSM_NAMESPACE_SIZE", "2"},
      {"JSM_NAMESPACE_LOCAL_RANK", "0"}, {"JSM_NAMESPACE_LOCAL_SIZE", "1"}, {"LSB_JOBID", "90210"},
      {"LSB_DJOB_RANKFILE", "/ranks"}});
  here.read_file = [](const std::string& path) {
    return path == "/ranks" ? std::optional<std::string>("login\nnode-a\nnode-b\n") : std::nullopt;
  };
  const auto place = rank_place(here);
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->master_address, "node-a");
  EXPECT_EQ(place->master_port, 15210);
  here.read_file = {};
  EXPECT_THAT(rank_refusal(here), HasSubstr("LSF does not say on which host rank 0 runs"));
}

TEST(RankPlace, WhatIsNoNumberIsNamed) {
  for (const char* bad : {"", "x", "-1", "4", "99999999999"})
    EXPECT_THAT(rank_refusal(with(kStep, {{"SLURM_PROCID", bad}})), HasSubstr("SLURM_PROCID"))
        << bad;
  EXPECT_THAT(rank_refusal(with(kStep, {{"SLURM_STEP_NODELIST", "a[1"}})), HasSubstr("needs ]"));
  EXPECT_THAT(
      rank_refusal(with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "3("}})), HasSubstr("needs x"));
  EXPECT_THAT(rank_refusal(with({{"PMI_RANK", "0"}})), HasSubstr("PMI_SIZE is not"));
  EXPECT_THAT(rank_refusal(with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}})),
      HasSubstr("OMPI_COMM_WORLD_LOCAL_RANK must be below"));
  EXPECT_THAT(
      rank_refusal(with({{"PMIX_RANK", "3"}})), HasSubstr("nothing says of how many ranks"));
}

// Two sources.

TEST(RankPlace, TwoNumbersOfOneProcessAreShown) {
  const std::string text = rank_refusal(with(kStep, {{"RANK", "1"}, {"WORLD_SIZE", "4"}}));
  EXPECT_THAT(text, HasSubstr("RANK is 1 of WORLD_SIZE 4"));
  EXPECT_THAT(text, HasSubstr("SLURM_PROCID is 3 of SLURM_STEP_NUM_TASKS 4 (Slurm)"));
  EXPECT_THAT(rank_refusal(with(kStep, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})),
      HasSubstr("RANK is 0 of WORLD_SIZE 1"));
  EXPECT_THAT(rank_refusal(with(kStep, {{"WORLD_SIZE", "3"}})), HasSubstr("RANK is not set of"));
  const std::string mpi =
      rank_refusal(with(kStep, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}));
  EXPECT_THAT(mpi, HasSubstr("SLURM_PROCID is 3"));
  EXPECT_THAT(mpi, HasSubstr("OMPI_COMM_WORLD_RANK is 1"));
  EXPECT_THAT(
      rank_refusal(with(kStep, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}})),
      HasSubstr("two numbers"));
}

TEST(RankPlace, NumbersThatAgreeAreOne) {
  EXPECT_FALSE(rank_place(with(kStep, {{"RANK", "3"}, {"WORLD_SIZE", "4"}}))) << "RANK is taken";
  EXPECT_TRUE(rank_place(with(kStep, {{"WORLD_SIZE", "4"}})));
  EXPECT_EQ(rank_place(with(kStep, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}))->source, "Slurm");
}

// A launcher on each node, or mpirun, which starts one process on each by srun.
TEST(RankPlace, NumbersOfNodesAreLeftAlone) {
  EXPECT_FALSE(rank_place(with(kStep, {{"RANK", "9"}, {"WORLD_SIZE", "16"}})));
  EXPECT_FALSE(rank_place(
      with(kStep, {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"TORCHELASTIC_RUN_ID", "none"}})));
  EXPECT_EQ(tasks_left_out(with(kBatch, {{"TORCHELASTIC_RUN_ID", "none"}})), "");
  const auto place =
      rank_place(with(kStep, {{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"MASTER_ADDR", "host-0"}}));
  EXPECT_EQ(place->source, "Open MPI");
  EXPECT_EQ(place->rank, 5);
}

TEST(RankPlace, OfAPodIsItsRank) {
  EXPECT_FALSE(rank_place(with({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"},
      {"MASTER_PORT", "23456"}, {"PET_NNODES", "2"}})));
}

// Launchers.

TEST(NodePlace, IsThatOfOneLauncherOnEachNode) {
  const auto here = with(kStep, {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"},
                                    {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}});
  const auto place = node_place(here);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->node, 1);
  EXPECT_EQ(place->nodes, 2);
  EXPECT_EQ(place->master_address, "host-0");
  EXPECT_EQ(place->master_port, 15071);
  EXPECT_EQ(place->job, "slurm-71.0");
  const auto mpi = node_place(with({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}));
  EXPECT_EQ(mpi->node, 1);
  EXPECT_EQ(mpi->nodes, 3);
  EXPECT_EQ(mpi->master_address, "");
}

TEST(NodePlace, DoesNotReadRank) {
  const Variables pod{{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  EXPECT_FALSE(node_place(with(pod)));
  EXPECT_TRUE(
      node_place(with(kStep, {{"RANK", "5"}, {"WORLD_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "2"},
                                 {"SLURM_PROCID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}})));
}

TEST(NodePlace, SeveralLaunchersOnANodeAreRefused) {
  EXPECT_THAT(
      node_refusal(with(kMpirun)), HasSubstr("Open MPI has started 2 launchers on this node"));
  EXPECT_THAT(node_refusal(with(kStep)), HasSubstr("Slurm has started 4 launchers on 2 nodes"));
  EXPECT_THAT(node_refusal(with({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})), HasSubstr("--node-rank"));
}

TEST(NodePlace, OfABatchScriptIsAloneAndSaysSo) {
  EXPECT_FALSE(node_place(with(kBatch)));
  EXPECT_THAT(
      nodes_left_out(with(kBatch)), HasSubstr("has 2 nodes, of which only this one is used"));
  EXPECT_EQ(nodes_left_out(with(kBatch, {{"SLURM_JOB_NUM_NODES", "1"}})), "");
  EXPECT_EQ(nodes_left_out(with(kStep)), "");
}

TEST(PortOfJob, IsTheSameInAllProcesses) {
  EXPECT_EQ(port_of_job("7"), 15007);
  EXPECT_EQ(port_of_job("120000"), 15000);
  EXPECT_EQ(port_of_job("99999999999999999999"), 24999);
  EXPECT_EQ(port_of_job("prterun-a-1@1"), port_of_job("prterun-a-1@1"));
  EXPECT_NE(port_of_job("prterun-a-1@1"), port_of_job("prterun-a-2@1"));
}

/// Runs in a child of its own, whose variables are lost with it.
[[noreturn]] void adopt_and_end() {
  adopt_rank_place();
  const bool right =
      system_variable("RANK") == "1" && system_variable("WORLD_SIZE") == "2" &&
      system_variable("LOCAL_RANK") == "1" && system_variable("LOCAL_WORLD_SIZE") == "2" &&
      system_variable("MASTER_ADDR") == "127.0.0.1" && system_variable("MASTER_PORT") == "15099" &&
      system_variable("TORCHELASTIC_RUN_ID") == "mpirun-99" &&
      system_variable("TORCHELASTIC_RESTART_COUNT") == "0" &&
      system_variable("OMP_NUM_THREADS") == "1";
  adopt_rank_place();  // again, as the next program does
  std::exit(right && system_variable("RANK") == "1" ? 0 : 1);
}

[[noreturn]] void adopt_as_rank_of_mpirun() {
  ::unsetenv("OMP_NUM_THREADS");
  ::setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  ::setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  ::setenv("PMIX_NAMESPACE", "99", 1);
  adopt_and_end();
}

TEST(AdoptRankPlace, SetsALaunchersVariablesOnce) {
  EXPECT_EXIT(adopt_as_rank_of_mpirun(), ::testing::ExitedWithCode(0), "");
}

TEST(Route, TowardsTheLoopbackIsTheLoopback) {
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(address_towards("127.0.1.1"), "127.0.0.1");
}

TEST(Route, TowardsOneOfOurOwnAddressesIsThatAddress) {
  const std::string own = address_outwards();
  if (!own.empty()) EXPECT_EQ(address_towards(own), own);
  EXPECT_FALSE(names_loopback(own));
}

TEST(Route, TowardsWhatHasNoAddressIsNone) {
  EXPECT_EQ(address_towards("no-such-host.invalid"), "");
}

TEST(ReachableName, LeavesNamesAloneThatOthersReach) {
  for (const char* host : {"127.0.0.1", "localhost", "::1", "192.0.2.7", "no-such-host.invalid"})
    EXPECT_EQ(reachable_name(host), host);
}

TEST(Loopback, IsTheHostAloneOfWhoReadsIt) {
  for (const char* host : {"localhost", "127.0.0.1", "127.5.6.7", "::1"})
    EXPECT_TRUE(names_loopback(host)) << host;
  for (const char* host :
      {"0.0.0.0", "10.0.0.1", "128.0.0.1", "node0", "localhost.example", "::", "127.example"})
    EXPECT_FALSE(names_loopback(host)) << host;
}

TEST(Interface, OfNoUseIsSaidSo) {
  EXPECT_EQ(obstacle_of_interface("lo"), "");
  EXPECT_EQ(
      obstacle_of_interface("no-such").find("is no network interface of this host; it can use "),
      0U);
  EXPECT_NE(obstacle_of_interface("").find("lo"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::cluster
