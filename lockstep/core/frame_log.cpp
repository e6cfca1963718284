#include "lockstep/core/frame_log.h"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep {
namespace {

constexpr std::string_view kStart = "\nException raised from ";
constexpr std::string_view kFrame = "\nframe #";

std::mutex frames_mutex;
std::string frames_folder;  // empty: none was chosen
std::string frames_path;    // empty: no frames yet

FileDescriptor open_frames(const std::string& path) {
  return FileDescriptor(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644));
}

FileDescriptor first_frames_file() {
  std::error_code ignored;
  if (!frames_folder.empty() && std::filesystem::is_directory(frames_folder, ignored)) {
    const std::string rank = environment("RANK").value_or("0");
    frames_path = concat(frames_folder, "/rank-", rank, "-frames.log");
    if (FileDescriptor file = open_frames(frames_path)) return file;
  }
  const auto folder = std::filesystem::temp_directory_path(ignored);
  frames_path = (ignored ? "/tmp" : folder.string()) + "/lockstep-frames-XXXXXX";
  FileDescriptor file(::mkostemp(frames_path.data(), O_CLOEXEC));
  if (!file) frames_path.clear();
  return file;
}

/// Returns the log's name; empty when it cannot be written.
std::string log_frames(const std::string& text) {
  const std::lock_guard lock(frames_mutex);
  const FileDescriptor file = frames_path.empty() ? first_frames_file() : open_frames(frames_path);
  const auto size = static_cast<ssize_t>(text.size());
  return file && ::write(file.get(), text.data(), text.size()) == size ? frames_path : "";
}

}  // namespace

FramedText cut_at_frames(std::string_view text) {
  const auto start = text.find(kStart);
  if (start == std::string_view::npos) return {std::string(text), "", ""};
  auto end = text.find('\n', start + 1);
  while (end != std::string_view::npos && text.substr(end).starts_with(kFrame)) {
    end = text.find('\n', end + 1);
  }
  end = std::min(end, text.size());
  std::string_view after = text.substr(end);
  // LibTorch ends the frames with an empty line.
  if (after == "\n" || after.starts_with("\n\n")) after.remove_prefix(1);
  return {std::string(text.substr(0, start)), std::string(text.substr(start + 1, end - start - 1)),
      std::string(after)};
}

std::string without_frames(std::string_view text) {
  FramedText parts = cut_at_frames(text);
  std::string shown = std::move(parts.before);
  while (!parts.frames.empty()) {
    const std::string log = log_frames(concat(shown, '\n', parts.frames, '\n'));
    if (!log.empty()) shown += concat(" (C++ frames: ", log, ")");
    parts = cut_at_frames(std::string(parts.after));
    shown += parts.before;
  }
  return shown;
}

void keep_frames_in(const std::string& folder) {
  const std::lock_guard lock(frames_mutex);
  frames_folder = folder;
}

FrameFilter::FrameFilter() : before_(std::cerr.rdbuf(this)) {}

FrameFilter::~FrameFilter() { std::cerr.rdbuf(before_); }

// Each insertion comes here whole: nothing is kept back, and no text is looked at twice.
std::streamsize FrameFilter::xsputn(const char* text, std::streamsize size) {
  const std::string_view whole(text, static_cast<std::size_t>(size));
  if (whole.find(kStart) == std::string_view::npos) return before_->sputn(text, size);
  const std::string shown = without_frames(whole);
  before_->sputn(shown.data(), static_cast<std::streamsize>(shown.size()));
  return size;
}

FrameFilter::int_type FrameFilter::overflow(int_type letter) {
  return traits_type::eq_int_type(letter, traits_type::eof())
             ? sync()
             : before_->sputc(static_cast<char>(letter));
}

int FrameFilter::sync() { return before_->pubsync(); }

}  // namespace lockstep
