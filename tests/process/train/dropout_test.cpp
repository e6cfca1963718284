// A net with dropout trains to the same bits however its ranks are started, and after a resume.

#include <gtest/gtest.h>

#include "tests/process/train/resumable_run.h"

namespace lockstep::testing {
namespace {

// The net has 103 million weights in front of its dropout: they are frozen.
const std::string kNet =
    "--model vgg11 --data mock --image-size 32 -b 4 --opt sgd --seed 3 "
    "--freeze features.*,classifier.0.* --val-interval never --progress none --log-interval 1 ";

TEST(Dropout, RepeatsByProcessesByThreadsAndAfterAResume) {
  const ResumableRun threads(kNet + "--parallel ddp --places 2 --snapshot-interval never");
  threads.complete("--max-steps 4");
  const ResumableRun processes(kNet + "--nproc-per-node 2 --snapshot-interval none");
  processes.complete("--max-steps 2");
  processes.complete("--max-steps 4");
  EXPECT_EQ(processes.summary()["resumed_from"], processes.file("snapshots/step-00000002"));
  EXPECT_EQ(processes.summary()["parameters_hash"], threads.summary()["parameters_hash"]);
}

}  // namespace
}  // namespace lockstep::testing
