#include "lockstep/cluster/node_list.h"

#include <gmock/gmock.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace lockstep::cluster
