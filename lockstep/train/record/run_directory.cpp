#include "lockstep/train/record/run_directory.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/train/options/run_configuration.h"

namespace lockstep {
namespace {

void write_all(const FileDescriptor& file, const std::string& path, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(file.get(), text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_errno("run: cannot write", path);
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace

bool holds_run(const std::string& path) {
  for (const char* name : {"metrics.jsonl", "config.toml", "snapshots"})
    if (std::filesystem::exists(path + "/" + name)) return true;
  return false;
}

bool continues(const std::string& path, const ResumeSettings& resume) {
  if (resume.kind == Resume::kNever) return false;
  if (resume.kind == Resume::kAuto || resume.again) return true;
  std::error_code none;
  const std::filesystem::path run = std::filesystem::weakly_canonical(path, none),
                              from = std::filesystem::weakly_canonical(resume.from, none);
  return from == run || from.parent_path() == run / "snapshots";
}

void check_run_directory(const std::string& path, const ResumeSettings& resume) {
  if (!std::filesystem::exists(path)) return;
  check(std::filesystem::is_directory(path), "train: --output is not a folder: ", path);
  if (holds_run(path) && continues(path, resume)) return;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    check(entry.path().filename() == "logs", "train: --output holds files already: ", path, " (",
        entry.path().filename().string(),
        "); name a new or empty folder, or leave --output out; --resume auto goes on with a run");
  }
}

RunDirectory::RunDirectory(std::string path, const ResumeSettings& resume)
    : path_(std::move(path)) {
  check_run_directory(path_, resume);
  std::filesystem::create_directories(path_);
  std::filesystem::create_directories(file("logs"));
}

void RunDirectory::write(const std::string& name, const std::string& text) const {
  const std::string path = file(name), fresh = file("." + name + ".new");
  {
    const FileDescriptor output(
        ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!output) throw_errno("run: cannot create", fresh);
    write_all(output, fresh, text);
    if (::fsync(output.get()) != 0) throw_errno("run: cannot write", fresh);
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) throw_errno("run: cannot rename to", path);
}

std::string shell_text(const std::vector<std::string>& arguments) {
  const std::string plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
  std::string line;
  for (const auto& argument : arguments) {
    if (!line.empty()) line += ' ';
    if (!argument.empty() && argument.find_first_not_of(plain) == std::string::npos) {
      line += argument;
      continue;
    }
    line += '\'';
    for (const char letter : argument) letter == '\'' ? line += "'\\''" : line += letter;
    line += '\'';
  }
  return line;
}

RunRecorder::RunRecorder(const TrainOptions& options, const std::vector<std::string>& command,
    const std::string& environment_json)
    : directory_(options.output, options.resume),
      metrics_(directory_.file("metrics.jsonl"), continues(options.output, options.resume)) {
  directory_.write("config.toml", config_toml(options));
  directory_.write("command.txt", shell_text(command) + "\n");
  directory_.write("env.json", environment_json + "\n");
}

void RunRecorder::finish(const RunSummary& summary) const {
  directory_.write("summary.json", to_json(summary) + "\n");
}

}  // namespace lockstep
