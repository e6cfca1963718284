// A net with dropout trains to the same bits however its ranks are started, and after a resume.

#include <gtest/gtest.h>

#include "tests/process/train/resumable_run.h"

namespace lockstep::testing {
namespace {

// The net has 103 million weights in front of its dropout: they are frozen, and no file is written
// that is not needed.
constexpr const char* kNet =
    "--model vgg11 --data mock --image-size 32 --num-classes 5 -b 4 --opt sgd --seed 3 "
    "--freeze features.*,classifier.0.* --val-interval never --progress none --log-interval 1 ";

std::string hash_after(const std::string& flags) {
  const ResumableRun run(kNet + flags);
  run.complete();
  return run.summary()["parameters_hash"];
}

TEST(Dropout, RepeatsByProcessesByThreadsAndAfterAResume) {
  const ResumableRun run(std::string(kNet) + "--nproc-per-node 2 --snapshot-interval none");
  run.complete("--max-steps 2");
  run.complete("--max-steps 4");
  ASSERT_EQ(run.summary()["resumed_from"], run.file("snapshots/step-00000002"));
  const std::string hash = run.summary()["parameters_hash"];
  const std::string never = "--max-steps 4 --snapshot-interval never ";
  EXPECT_EQ(hash_after(never + "--nproc-per-node 2"), hash);
  EXPECT_EQ(hash_after(never + "--parallel ddp --places 2"), hash);
  EXPECT_NE(hash_after(never + "--nproc-per-node 2 --seed 4"), hash);
}

}  // namespace
}  // namespace lockstep::testing
