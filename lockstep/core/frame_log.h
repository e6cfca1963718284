#pragma once

#include <streambuf>
#include <string>
#include <string_view>

namespace lockstep {

/// A text that is cut where LibTorch's messages go on with C++ frames.
struct FramedText {
  std::string before;
  std::string frames;  ///< `Exception raised from ...` and the lines of the stack; may be empty
  std::string after;
};

/// Cuts a text at the first frames in it.
FramedText cut_at_frames(std::string_view text);

/// Puts the frames of a text into a log and returns the text with the log's name in their place.
///
/// The log is `rank-N-frames.log` in the folder of keep_frames_in(), if that is there, or else a
/// new file in the system's folder for temporary files.
std::string without_frames(std::string_view text);

/// Chooses the folder of the log of frames.
void keep_frames_in(const std::string& folder);

/// Does that to all that is written to std::cerr, by LibTorch too, while it exists.
class FrameFilter : private std::streambuf {
 public:
  FrameFilter();
  FrameFilter(const FrameFilter&) = delete;
  FrameFilter& operator=(const FrameFilter&) = delete;
  ~FrameFilter() override;

 private:
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int_type overflow(int_type letter) override;
  int sync() override;

  std::streambuf* before_;
};

}  // namespace lockstep
