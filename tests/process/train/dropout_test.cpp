// A net with dropout trains to the same bits however its ranks are started, and after a resume.

#include <filesystem>
#include <gtest/gtest.h>

#include "tests/process/train/resumable_run.h"

namespace lockstep::testing {
namespace {

const std::string kNet =
    "--plugin " LOCKSTEP_PLUGINS
    "/layers.so --model dropout --data mock --image-size 8 -b 4 --opt sgd --seed 3 "
    "--val-interval never --progress none --log-interval 1 ";

// Gives another run what one has saved so far.
void copy_run(const ResumableRun& from, const ResumableRun& to) {
  std::filesystem::copy(from.output(), to.output(), std::filesystem::copy_options::recursive);
}

TEST(Dropout, RepeatsByProcessesByThreadsAndAfterAResume) {
  const std::string saved = kNet + "--snapshot-interval none ";
  const ResumableRun threads(kNet + "--parallel ddp --places 2 --snapshot-interval never");
  threads.complete("--max-steps 4");
  const ResumableRun processes(saved + "--nproc-per-node 2");
  processes.complete("--max-steps 2");
  const ResumableRun mixed(saved + "--parallel ddp --places 2");
  copy_run(processes, mixed);
  for (const ResumableRun* resumed : {&processes, &mixed}) {
    resumed->complete("--max-steps 4");
    EXPECT_EQ(resumed->summary()["resumed_from"], resumed->file("snapshots/step-00000002"));
    EXPECT_EQ(resumed->summary()["parameters_hash"], threads.summary()["parameters_hash"]);
  }
}

// A pipeline's stages: in processes, and from the same snapshot in threads.
TEST(Dropout, GoesOnInAnotherWayOfStarting) {
  const std::string flags =
      kNet + "--snapshot-interval none --parallel pp --balance count --chunks 2 ";
  const ResumableRun ranks(flags + "--nproc-per-node 2"), places(flags + "--places 2");
  ranks.complete("--max-steps 1");
  copy_run(ranks, places);
  for (const ResumableRun* resumed : {&ranks, &places}) resumed->complete("--max-steps 2");
  EXPECT_EQ(places.summary()["resumed_from"], places.file("snapshots/step-00000001"));
  EXPECT_EQ(places.summary()["parameters_hash"], ranks.summary()["parameters_hash"]);
}

}  // namespace
}  // namespace lockstep::testing
