#include "lockstep/cli/env.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "tests/support/temporary_folder.h"

#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

TEST(HostFacts, HaveEverySection) {
  const Facts facts = host_facts();
  for (const char* section :
      {"system", "processor", "memory", "limits", "gpu", "network", "scheduler"}) {
    EXPECT_TRUE(facts.contains(section)) << section;
  }
  EXPECT_GE(facts["processor"]["cores_usable"], 1);
  EXPECT_GT(facts["memory"]["total_bytes"], 0);
}

TEST(SchedulerFacts, SayWhatIsUnderstood) {
  const Facts none = scheduler_facts({});
  EXPECT_TRUE(none["found"].empty());
  EXPECT_EQ(none["a_rank_here"], "alone");
  EXPECT_EQ(none["a_launcher_here"], "alone");
  cluster::Surroundings here{.variables = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"},
                                 {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}};
  const Facts two = scheduler_facts(here);
  EXPECT_EQ(two["found"][0], "PMI");
  EXPECT_EQ(two["a_rank_here"],
      "rank 1 of 2 by MPICH or Intel MPI, 1 of 2 on this node, meets at 127.0.0.1:29500");
  EXPECT_EQ(two["a_launcher_here"].get<std::string>().find("refused: "), 0U);
  here.variables["RANK"] = "0";
  here.variables["WORLD_SIZE"] = "2";
  EXPECT_EQ(scheduler_facts(here)["a_rank_here"].get<std::string>().find("refused: "), 0U);
}

TEST(BuildFacts, NameEveryVersion) {
  const Facts facts = build_facts();
  for (const char* part : {"lockstep", "libtorch", "cmake", "zlib", "libpng", "openssl", "curl",
           "libarchive", "tomlplusplus"}) {
    ASSERT_TRUE(facts.contains(part)) << part;
    EXPECT_FALSE(facts[part].get<std::string>().empty()) << part;
  }
}

TEST(BytesOf, ReadsKibibytesAndNothingElse) {
  EXPECT_EQ(bytes_of("16384 kB"), 16384 * 1024.0);
  for (const char* field : {"", "many kB", " ", "kB"}) EXPECT_EQ(bytes_of(field), std::nullopt);
}

TEST(FieldOf, ReadsTheKernelsTables) {
  const std::string text =
      "processor\t: 0\nmodel name\t: Fast\nmodel\t\t: 3\nMemTotal:  8 kB\nx:\n";
  EXPECT_EQ(field_of(text, "model name"), "Fast");
  EXPECT_EQ(field_of(text, "model"), "3");
  EXPECT_EQ(field_of(text, "MemTotal"), "8 kB");
  EXPECT_EQ(field_of(text, "x"), "");
  EXPECT_EQ(field_of(text, "none"), "");
}

TEST(BytesInWords, TakesTheFittingUnit) {
  EXPECT_EQ(bytes_in_words(0), "0 B");
  EXPECT_EQ(bytes_in_words(1536), "1.5 KiB");
  EXPECT_EQ(bytes_in_words(16.0 * 1024 * 1024 * 1024), "16.0 GiB");
}

TEST(Dispatch, RefusesWhatIsNotThere) {
  EXPECT_THROW(dispatch({"rum"}), InvalidArgument);
  EXPECT_THROW(dispatch({"--vresion"}), InvalidArgument);
}

TEST(Dispatch, RefusesFlagsThatWouldBeIgnored) {
  EXPECT_THROW(dispatch({"env", "--device", "cuda"}), InvalidArgument);
  EXPECT_THROW(dispatch({"env", "--check-devices", "--json"}), InvalidArgument);
  EXPECT_THROW(dispatch({"hosts", "--by", "ssh", "--count", "1", "--", "true"}), InvalidArgument);
}

TEST(NvidiaSmi, ListsTheGpusOfAQuery) {
  const auto gpus = parse_gpu_query(
      "0, GPU-b1f0a6d4-5c4e-2f0e-8f63-3a51d2c0a111, 535.129.03, 81920, NVIDIA A100-SXM4-80GB\n"
      "11, GPU-00000000-0000-0000-0000-000000000002, 535.129.03, [N/A], NVIDIA GB10, rev. 2\r\n");
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0]["index"], 0);
  EXPECT_EQ(gpus[0]["name"], "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(gpus[0]["memory_bytes"], 81920.0 * 1024 * 1024);
  EXPECT_EQ(gpus[0]["uuid"], "GPU-b1f0a6d4-5c4e-2f0e-8f63-3a51d2c0a111");
  EXPECT_EQ(gpus[0]["driver"], "535.129.03");
  EXPECT_EQ(gpus[1]["index"], 11);
  EXPECT_EQ(gpus[1]["name"], "NVIDIA GB10, rev. 2");
  EXPECT_TRUE(gpus[1]["memory_bytes"].is_null());
}

TEST(NvidiaSmi, HasNoGpuInAMessage) {
  for (const char* text : {"", "\n", "No devices were found\n", "0, GPU-1\n",
           "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
           "sure, that, the, latest, driver is running.\n"})
    EXPECT_TRUE(parse_gpu_query(text).empty()) << text;
}

// As drivers 535 and later print it, with the underline of the column names.
constexpr const char* kThreeGpus =
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tSYS\tPXB\t48-63,176-191\t3\t\tN/A\n"
    "GPU1\tNV12\t X \tNODE\tPXB\t48-63,176-191\t3\t\tN/A\n"
    "GPU2\tSYS\tNODE\t X \tSYS\t0-15\t0\t\tN/A\n"
    "NIC0\tPXB\tPXB\tSYS\t X \t\t\t\t\n"
    "\n"
    "Legend:\n"
    "\n"
    "  X    = Self\n"
    "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes\n"
    "  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\n"
    "NIC Legend:\n"
    "\n"
    "  NIC0: mlx5_0\n";

TEST(NvidiaSmi, ConnectsEachPairOnce) {
  const nlohmann::ordered_json expected{
      {"GPU0-GPU1", "NV12"}, {"GPU0-GPU2", "SYS"}, {"GPU1-GPU2", "NODE"}};
  EXPECT_EQ(parse_gpu_topology(kThreeGpus), expected);
  EXPECT_TRUE(parse_gpu_topology("").empty());
  EXPECT_TRUE(parse_gpu_topology("\tGPU0\tCPU Affinity\nGPU0\t X \t0-31\n").empty());
  EXPECT_TRUE(parse_gpu_topology("Failed to initialize NVML: Driver/library mismatch\n").empty());
}

TEST(NvidiaSmi, ConnectionsHaveWords) {
  EXPECT_EQ(connection_in_words("NV1"), "1 NVLink");
  EXPECT_EQ(connection_in_words("NV12"), "12 NVLinks");
  EXPECT_EQ(connection_in_words("SYS"), "PCIe, between NUMA nodes");
  EXPECT_EQ(connection_in_words("XYZ"), "XYZ");
}

TEST(NvidiaSmi, PeerAccessHasWords) {
  EXPECT_EQ(peer_access_in_words("OK"), "peer access");
  EXPECT_EQ(peer_access_in_words("CNS"), "no peer access");
  EXPECT_EQ(peer_access_in_words("U"), "peer access: U");
}

/// A program of this name before all others of PATH, for as long as it lives.
class ProgramInPath {
 public:
  ProgramInPath(const std::string& name, const std::string& script) : before_(::getenv("PATH")) {
    std::ofstream(folder_.file(name)) << "#!/bin/sh\n" << script;
    std::filesystem::permissions(folder_.file(name), std::filesystem::perms::owner_all);
    ::setenv("PATH", (folder_.str() + ":" + before_).c_str(), 1);
  }
  ~ProgramInPath() { ::setenv("PATH", before_.c_str(), 1); }
  ProgramInPath(const ProgramInPath&) = delete;
  ProgramInPath& operator=(const ProgramInPath&) = delete;

 private:
  testing::TemporaryFolder folder_;
  std::string before_;
};

constexpr const char* kTwoGpus =
    "case \"$*\" in\n"
    "*query-gpu*) for i in 0 1; do echo \"$i, GPU-$i, 580.1, 81920, NVIDIA H100\"; done ;;\n"
    "'topo -m') printf '\\tGPU0\\tGPU1\\nGPU0\\t X \\tNV12\\nGPU1\\tNV12\\t X \\n' ;;\n"
    "'topo -p2p r') printf ' \\tGPU0\\tGPU1\\t\\n GPU0\\tX\\tOK\\t\\n GPU1\\tOK\\tX\\t\\n' ;;\n"
    "esac\n";

TEST(NvidiaSmi, IsAskedForGpusConnectionsAndPeerAccess) {
  const ProgramInPath smi("nvidia-smi", kTwoGpus);
  const auto facts = nvidia_smi_facts();
  EXPECT_EQ(facts["gpus"].size(), 2U);
  EXPECT_EQ(facts["connections"], (nlohmann::ordered_json{{"GPU0-GPU1", "NV12"}}));
  EXPECT_EQ(facts["peer_access"], (nlohmann::ordered_json{{"GPU0-GPU1", "OK"}}));
}

TEST(NvidiaSmi, ThatDoesNotKnowAQuestionAnswersTheOthers) {
  const ProgramInPath smi("nvidia-smi", std::string("[ \"$1\" = topo ] && exit 2\n") + kTwoGpus);
  const auto facts = nvidia_smi_facts();
  EXPECT_EQ(facts["gpus"].size(), 2U);
  EXPECT_TRUE(facts["peer_access"].empty());
}

TEST(OutputOf, IsWhatAProgramPrinted) {
  EXPECT_EQ(output_of("sh", {"-c", "echo one; echo lost >&2; echo two"}, 60), "one\ntwo\n");
}

TEST(OutputOf, ProgramsThatFailHangOrAreNotThereAreErrors) {
  EXPECT_THROW(output_of("sh", {"-c", "echo one; exit 9"}, 60), std::system_error);
  EXPECT_THROW(output_of("sleep", {"1000"}, 0.1), std::system_error);
  EXPECT_THROW(output_of("sh", {"-c", "exec >&- 2>&-; sleep 1000"}, 0.1), std::system_error);
  EXPECT_THROW(output_of("no-such-program-here", {}, 60), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::cli
