
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/output/worker_output.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;

TEST(LineBuffer, GivesWholeLinesOnly) {
  LineBuffer lines;
  EXPECT_EQ(lines.take("a"), "");
  EXPECT_EQ(lines.take("b\nc\nd"), "ab\nc\n");
  EXPECT_EQ(lines.take("\n"), "d\n");
  EXPECT_EQ(lines.rest(), "");
  EXPECT_EQ(lines.take("end"), "");
  EXPECT_EQ(lines.rest(), "end\n");
}

TEST(LineBuffer, DoesNotCollectAnEndlessLine) {
  LineBuffer lines;
  std::size_t given = 0;
  for (int i = 0; i < 100; ++i) given += lines.take(std::string(10000, 'x')).size();
  EXPECT_GT(given, 900000U);
}

TEST(LineBuffer, KnowsAProgressBarBeforeItsEnd) {
  LineBuffer lines;
  lines.take("no bar yet");
  EXPECT_EQ(lines.bar(), "");
  lines.take("\r10 %\r50 %");
  EXPECT_EQ(lines.bar(), "50 %");
  EXPECT_EQ(lines.take("\r100 %\n"), "no bar yet\r10 %\r50 %\r100 %\n");
  EXPECT_EQ(lines.bar(), "");
}

TEST(Prefixed, ShowsOfAProgressBarWhatIsVisible) {
  EXPECT_EQ(prefixed("10 %\r50 %\nwindows\r\n", "[rank 1] "), "[rank 1] 50 %\n[rank 1] windows\n");
}

TEST(Prefixed, PutsThePrefixBeforeEachLine) {
  EXPECT_EQ(prefixed("a\n\nb\n", "[rank 1] "), "[rank 1] a\n[rank 1] \n[rank 1] b\n");
  EXPECT_EQ(prefixed("", "x"), "");
}

TEST(Tail, RemembersTheLastLines) {
  Tail tail;
  EXPECT_TRUE(tail.lines().empty());
  tail.take("\n");
  tail.take("a\n");
  EXPECT_THAT(tail.lines(), ElementsAre("", "a"));
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "line " + std::to_string(i) + "\n";
  tail.take(text);
  EXPECT_EQ(tail.lines().size(), 20U);
  EXPECT_EQ(tail.lines().front(), "line 980");
  tail.take("last\n");
  EXPECT_EQ(tail.lines().front(), "line 981");
  EXPECT_EQ(tail.lines().back(), "last");
}

TEST(Tail, KeepsOfAProgressBarWhatIsVisible) {
  Tail tail;
  tail.take("10 %\r50 %\r100 %\n");
  tail.take("windows\r\n");
  tail.take(std::string(2000, 'x') + "\n");
  EXPECT_THAT(tail.lines(), ElementsAre("100 %", "windows", std::string(500, 'x')));
}

TEST(Console, NeverWaitsForItsReaderAndLosesNothing) {
  const Pipe output = make_pipe(), errors = make_pipe();
  Console console(output.writer.get(), errors.writer.get());
  std::string expected;
  while (console.has_room()) {
    const std::string line = "line " + std::to_string(expected.size()) + "\n";
    expected += line;
    console.write(Stream::kOutput, line);
  }
  std::string found;
  char bytes[5000];
  while (found.size() < expected.size()) {
    const ssize_t size = ::read(output.reader.get(), bytes, sizeof(bytes));
    ASSERT_GT(size, 0);
    found.append(bytes, static_cast<std::size_t>(size));
    console.flush();
  }
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(console.empty());
}

TEST(Console, DropsTheTextWhenTheReaderIsGone) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  Pipe output = make_pipe(), errors = make_pipe();
  output.reader.reset();
  Console console(output.writer.get(), errors.writer.get());
  console.write(Stream::kOutput, "text");
  EXPECT_TRUE(console.empty());
  ::signal(SIGPIPE, before);
}

}  // namespace
}  // namespace lockstep::launch
