#include "lockstep/core/frame_log.h"

#include <gmock/gmock.h>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include "tests/support/temporary_folder.h"

#include "lockstep/core/exit_code.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFramed =
    "no room\nException raised from make at a.cpp:7 (most recent call first):\nframe #0: a\n"
    "frame #1: b\n";

TEST(FrameLog, CutsATextAtItsFrames) {
  const FramedText cut = cut_at_frames(std::string("a: ") + kFramed + "\nmore");
  EXPECT_EQ(cut.before, "a: no room");
  EXPECT_EQ(cut.frames,
      "Exception raised from make at a.cpp:7 (most recent call first):\nframe #0: a\nframe #1: b");
  EXPECT_EQ(cut.after, "\nmore");
  EXPECT_EQ(cut_at_frames("two\nlines\n").before, "two\nlines\n");
}

/// Takes the place of std::cerr's buffer.
class Terminal {
 public:
  Terminal() : before_(std::cerr.rdbuf(&text_)) {}
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() { std::cerr.rdbuf(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::stringbuf text_;
  std::streambuf* before_;
};

// One test: a process has one log of frames.
TEST(FrameLog, KeepsFramesOffTheTerminalAndNamesItsFile) {
  const testing::TemporaryFolder folder;
  keep_frames_in(folder.str());
  const Terminal terminal;
  {
    const FrameFilter filter;
    std::cerr << "plain" << '\n' << "b: " << kFramed << std::endl;
  }
  const std::string log = folder.file("rank-0-frames.log");
  const std::string shown = "plain\nb: no room (C++ frames: " + log + ")\n";
  EXPECT_EQ(terminal.text(), shown);
  EXPECT_THAT(testing::contents(log), HasSubstr("no room\nException raised from make at"));
  EXPECT_THAT(testing::contents(log), HasSubstr("frame #1: b\n"));

  const auto fail = [](int, char**) -> int { throw std::runtime_error(kFramed); };
  EXPECT_EQ(run_program("prog", fail, 0, nullptr), 1);
  EXPECT_EQ(terminal.text(), shown + "prog: no room (C++ frames: " + log + ")\n");
}

}  // namespace
}  // namespace lockstep
