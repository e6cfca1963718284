#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/cli/env/host_facts.h"
#include "lockstep/cli/env/scheduler_facts.h"
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

}  // namespace
}  // namespace lockstep::cli
