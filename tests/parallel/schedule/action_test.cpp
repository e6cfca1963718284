// The text of actions, case H3 (PyTorch's test_schedule.py, ActionTest).

#include "lockstep/parallel/schedule/action.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

#include "tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using enum ActionKind;

TEST(Action, H3TextsParseAndPrintUnchanged) {
  for (const char* text :
       {"1F0", "2I1", "0W3", "0B3", "2SEND_B2", "1RECV_F1", "10SEND_F127", "3RECV_B0"}) {
    EXPECT_EQ(to_string(parse_action(text)), text);
  }
}

TEST(Action, H3TextsMeanStageKindAndMicroBatch) {
  EXPECT_EQ(parse_action("1F0"), (Action{1, kForward, 0}));
  EXPECT_EQ(parse_action("2I1"), (Action{2, kBackwardInput, 1}));
  EXPECT_EQ(parse_action("0W3"), (Action{0, kBackwardWeight, 3}));
  EXPECT_EQ(parse_action("0B3"), (Action{0, kBackward, 3}));
  EXPECT_EQ(parse_action("2SEND_B2"), (Action{2, kSendBackward, 2}));
  EXPECT_EQ(parse_action("1RECV_F1"), (Action{1, kReceiveForward, 1}));
  EXPECT_EQ(parse_action("12SEND_F34"), (Action{12, kSendForward, 34}));
  EXPECT_EQ(parse_action("4RECV_B5"), (Action{4, kReceiveBackward, 5}));
}

TEST(Action, OtherTextsAreRefusedAndRepeated) {
  for (const char* text :
       {"", "F", "1F", "F0", "1X0", "-1F0", "1F-1", "1F0 ", "1 F0", "1SEND0", "17",
        "99999999999F0"}) {
    EXPECT_THAT(
        testing::message_of<InvalidArgument>([&] { parse_action(text); }),
        HasSubstr("'" + std::string(text) + "'"));
  }
}

}  // namespace
}  // namespace lockstep
