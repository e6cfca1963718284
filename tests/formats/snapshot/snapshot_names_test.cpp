#include "lockstep/snapshot/snapshot_names.h"

#include <gtest/gtest.h>
#include <limits>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

TEST(SnapshotNames, AreReadAsTheyAreWritten) {
  EXPECT_EQ(snapshot_name(1200), "step-00001200");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t step :
      {std::int64_t{0}, std::int64_t{99'999'999}, std::int64_t{100'000'000}, most}) {
    EXPECT_EQ(step_of(snapshot_name(step)), step);
    EXPECT_EQ(step_of_aside(aside_name(step)), step);
    EXPECT_TRUE(is_leftover(aside_name(step)));
  }
  EXPECT_THROW(snapshot_name(-1), InvalidArgument);
  EXPECT_NE(aside_name(1), aside_name(1));
}

TEST(SnapshotNames, AreNoOthers) {
  for (const char* name :
      {"", "step-", "step-1", "step-0000001", "step-000000001", "step-+0000001", "step--0000001",
          "step-00000001 ", "step-0000000a", "Step-00000001", "step-9223372036854775808",
          "step-00000001.old", ".step-00000001", "step-00000001/../step-00000002"}) {
    EXPECT_FALSE(step_of(name)) << name;
  }
}

TEST(SnapshotNames, OfLeftoversAreOnlyOurs) {
  for (const char* name : {".step-00000001.abcdef", ".LATEST.17.part", ".best.0.part"}) {
    EXPECT_TRUE(is_leftover(name)) << name;
  }
  for (const char* name :
      {"", ".", "step-00000001", ".step-00000001", ".step-00000001.", ".step-00000001.abcde",
          ".step-00000001.abcdefg", ".step-00000001.abc/ef", ".step-1.abcdef", "LATEST", ".LATEST",
          ".LATEST..part", ".LATEST.1a.part", ".LATEST.1.partx", ".other.1.part", ".nfs0000001"}) {
    EXPECT_FALSE(is_leftover(name)) << name;
  }
}

TEST(SnapshotNames, OfFilesStayInTheFolder) {
  for (const char* name : {"a", "model-00001-of-00002.safetensors", "state.json", "A_b.c-9"}) {
    EXPECT_TRUE(is_file_name(name)) << name;
  }
  for (const char* name : {"", ".", "..", ".a", "a/b", "/a", "../a", "a\\b", "a b", "a\n",
           "\xc3\xa9", "manifest.json"}) {
    EXPECT_FALSE(is_file_name(name)) << name;
  }
  EXPECT_FALSE(is_file_name(std::string_view("a\0b", 3)));
  EXPECT_TRUE(is_file_name(std::string(200, 'a')));
  EXPECT_FALSE(is_file_name(std::string(201, 'a')));
}

}  // namespace
}  // namespace lockstep
