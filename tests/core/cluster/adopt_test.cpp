#include "lockstep/cluster/adopt.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

#include "lockstep/core/environment.h"

namespace lockstep::cluster {
namespace {

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

}  // namespace
}  // namespace lockstep::cluster
