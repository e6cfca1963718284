#pragma once

// This process: what it inherits, how much memory it has needed, how it says why it ends.

#include <cstdint>
#include <exception>
#include <optional>
#include <streambuf>
#include <string>
#include <string_view>

namespace lockstep {

/// Opens /dev/null in the place of each of standard input, output and error that is closed. Else
/// the next file or socket would take its number, and text for the console would go there.
void open_standard_streams();

/// Repairs what this process may have inherited in a bad state: closed standard streams,
/// and an ignored SIGCHLD, under which no child can be waited for. A file that reaches the limit of
/// `ulimit -f` is an error like a full disk from here on, not the end. Call it first in `main`.
void repair_inherited_state();

/// Returns the most memory in bytes that this process has had resident since its program began:
/// libraries and pages shared with other processes count in full. Nothing where the operating
/// system does not report it.
std::optional<std::int64_t> peak_memory_bytes();

/// Returns the seconds for which all threads of this process have kept a core busy.
double process_cpu_seconds();

/// Returns the time now as `2026-01-31T12:00:00.123Z`.
std::string utc_now();

/// Returns this host's name; `unknown` where it has none.
std::string host_name();

/// Returns the file of this program. `what` begins the std::system_error where /proc is missing.
std::string own_program(const std::string& what);

/// Returns the folder for temporary files. Throws std::system_error that names TMPDIR if it is
/// none.
std::string temporary_folder();

/// Returns a text that is equal in two processes exactly if they can share memory through /proc:
/// one boot, one pid namespace, one user. In tests LOCKSTEP_TEST_HOST makes hosts of processes.
std::string host_identity();

/// Says why this program ends: to the launcher of ours that started it as a rank, which shows one
/// error of all ranks and logs the others; without one on stderr, as `PROGRAM: MESSAGE`.
void report_error(const char* program, const std::exception& error);

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

/// Calls without_frames() on all that is written to std::cerr, by LibTorch too, while it exists.
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
