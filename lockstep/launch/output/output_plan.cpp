#include "lockstep/launch/output/output_plan.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <regex>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/text.h"

namespace lockstep::launch {
namespace {

bool is_shown(const OutputOptions& options, int local_rank, Stream stream) {
  const auto& ranks = options.shown_ranks;
  if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), local_rank) == ranks.end())
    return false;
  return !options.redirects.has(local_rank, stream) || options.tee.has(local_rank, stream);
}

bool is_unseen(const OutputOptions& options, int local_rank) {
  return options.first_inherits && local_rank == 0;
}

std::string log_of(const OutputOptions& options, int rank) {
  return options.log_dir + "/rank-" + std::to_string(rank);
}

std::string file_of(const OutputOptions& options, int local_rank, int rank, Stream stream) {
  if (options.log_dir.empty() || is_unseen(options, local_rank)) return "";
  const std::string start = log_of(options, rank);
  if (options.redirects.empty() && options.tee.empty()) return start + ".log";
  const bool kept =
      options.redirects.has(local_rank, stream) || options.tee.has(local_rank, stream);
  if (!kept) return "";
  return start + (stream == Stream::kOutput ? ".stdout.log" : ".stderr.log");
}

int shown_ranks(const OutputOptions& options, int local_size) {
  int shown = 0;
  for (int rank = 0; rank < local_size; ++rank) {
    shown += is_shown(options, rank, Stream::kOutput) || is_shown(options, rank, Stream::kErrors);
  }
  return shown;
}

void replace_all(std::string& text, const std::string& name, const std::string& value) {
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size()) {
    text.replace(at, name.size(), value);
  }
}

}  // namespace

StreamMask StreamMask::parse(const std::string& flag, const std::string& text) {
  static const std::regex kForAll("[0-3]");
  static const std::regex kForRanks("([0-9]{1,6}:[0-3],)*[0-9]{1,6}:[0-3]");
  StreamMask mask;
  if (std::regex_match(text, kForAll)) {
    mask.all_ = text[0] - '0';
    return mask;
  }
  check(std::regex_match(text, kForRanks), flag,
      ": must be 0 (none), 1 (output), 2 (errors) or 3 (both), or RANK:MASK,RANK:MASK: ", text);
  for (const std::string& entry : split(text, ',')) {
    const auto colon = entry.find(':');
    mask.ranks_[*parse_number<int>(entry.substr(0, colon))] = entry[colon + 1] - '0';
  }
  return mask;
}

bool StreamMask::has(int local_rank, Stream stream) const {
  const auto rank = ranks_.find(local_rank);
  const int mask = rank == ranks_.end() ? all_ : rank->second;
  return (mask & static_cast<int>(stream)) != 0;
}

bool StreamMask::empty() const {
  const auto none = [](const auto& rank) { return rank.second == 0; };
  return all_ == 0 && std::all_of(ranks_.begin(), ranks_.end(), none);
}

Route route_of(
    const OutputOptions& options, int local_rank, int rank, int local_size, Stream stream) {
  const bool alone = shown_ranks(options, local_size) <= 1;
  return {.shown = is_shown(options, local_rank, stream),
      .file = file_of(options, local_rank, rank, stream),
      .prefix = alone ? "" : options.prefix};
}

std::string message_log_of(const OutputOptions& options, int local_rank, int rank) {
  if (options.log_dir.empty() || !is_unseen(options, local_rank)) return "";
  return log_of(options, rank) + ".log";
}

bool append_to(const std::string& path, const std::string& text) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
  const FileDescriptor file(::open(path.c_str(), kFlags, 0644));
  return file && ::write(file.get(), text.data(), text.size()) == std::ssize(text);
}

std::string fill_prefix(std::string pattern, int rank, int local_rank, const std::string& role) {
  replace_all(pattern, "${role_name}", role);
  replace_all(pattern, "${local_rank}", std::to_string(local_rank));
  replace_all(pattern, "${rank}", std::to_string(rank));
  return pattern;
}

void check_log_dir(const std::string& log_dir, bool append) {
  namespace fs = std::filesystem;
  if (log_dir.empty()) return;
  std::error_code error;
  fs::create_directories(log_dir, error);
  check(!error || fs::exists(log_dir), "--log-dir: cannot make the folder ", log_dir, ": ",
      error.message());
  check(fs::is_directory(log_dir), "--log-dir: ", log_dir, " is not a folder");
  check(append || fs::is_empty(log_dir), "--log-dir: ", log_dir,
      " is not empty; name an empty folder, so that no earlier log is overwritten");
}

}  // namespace lockstep::launch
