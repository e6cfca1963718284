#include "bench/experiment/sample.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_stream.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/formats/output_file.h"

namespace lockstep::bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kVersion = 1;

OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

// Null is NaN: measured and not finite. What an older program did not write is 0.
double seconds_of(const JsonFields& fields, const char* key) {
  return fields.items().contains(key) ? fields.number_or_nan(key) : 0;
}

constexpr std::size_t kLongestLine = 1 << 20;

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

FileDescriptor open_log(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  FileDescriptor file(::open(path.c_str(), kFlags, 0644));
  if (!file) throw_errno("bench: open", path);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) throw_errno("bench: look at", path);
  if (!S_ISREG(facts.st_mode)) throw DataError(path + ": is not a regular file");
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  if (errno != EWOULDBLOCK) throw_errno("bench: lock", path);
  throw InvalidArgument(concat(
      "bench: another bench is writing ", path, "; let it end first, or use another --output"));
}

/// Makes the file's name durable, too.
void sync_folder_of(const std::filesystem::path& path) {
  const std::filesystem::path parent = path.parent_path();
  OpenDirectory::open(parent.empty() ? "." : parent).sync();
}

void sync(const FileDescriptor& file, const std::string& path) {
  if (::fsync(file.get()) != 0) throw_errno("bench: sync", path);
}

std::string text_of(const std::filesystem::path& path) {
  InputFile file(path);
  std::string text;
  std::array<std::uint8_t, 1 << 16> block;
  for (std::size_t size = file.read(block); size > 0; size = file.read(block)) {
    text.append(reinterpret_cast<const char*>(block.data()), size);
  }
  return text;
}

}  // namespace

std::string to_json(const Sample& sample) {
  OrderedJson values = OrderedJson::object();
  for (const auto& [name, value] : sample.values) values[name] = number(value);
  const OrderedJson line = {{"v", kVersion}, {"study", sample.study}, {"cell", sample.cell},
      {"round", sample.round}, {"time", text_or_null(sample.time)},
      {"settings", OrderedJson(sample.settings)}, {"command", OrderedJson(sample.command)},
      {"places", sample.places}, {"oversubscribed", sample.oversubscribed}, {"values", values},
      {"seconds", number(sample.seconds)},
      {"calibration_seconds", number(sample.calibration_seconds)},
      {"other_share", number(sample.other_share)}, {"code", sample.code},
      {"failure", text_or_null(sample.failure)},
      {"not_measurable", text_or_null(sample.not_measurable)}};
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Sample parse_sample(std::string_view text, const std::string& where) {
  const nlohmann::json object = parse_strict_json(text, where);
  const JsonFields fields(object, where);
  if (const auto version = fields.count("v"); version != kVersion)
    throw DataError(concat(where, ": v is ", version, "; this program reads ", kVersion));
  Sample sample{.study = fields.text("study"),
      .cell = fields.text("cell"),
      .round = fields.small_count("round", 1),
      .time = fields.text_if("time").value_or(""),
      .oversubscribed = fields.flag_if("oversubscribed").value_or(false),
      .seconds = seconds_of(fields, "seconds"),
      .calibration_seconds = seconds_of(fields, "calibration_seconds"),
      .other_share = seconds_of(fields, "other_share"),
      .failure = fields.text_if("failure").value_or(""),
      .not_measurable = fields.text_if("not_measurable").value_or("")};
  if (fields.has("settings")) sample.settings = fields.text_map("settings");
  if (fields.has("command")) sample.command = fields.texts("command");
  if (fields.has("places")) sample.places = fields.small_count("places", 1);
  if (fields.has("code")) sample.code = fields.small_count("code");
  if (const auto values = fields.object_if("values")) {
    for (const auto& [name, value] : values->items().items()) {
      sample.values[name] = values->number_or_nan(name.c_str());
    }
  }
  return sample;
}

SampleFile parse_samples(std::string_view text, const std::string& file) {
  SampleFile result;
  for (std::size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    const std::string where = concat(file, ": line ", number);
    const bool is_last = end + 1 >= text.size();
    if (line.size() > kLongestLine) {
      throw DataError(concat(where, ": ", line.size(), " bytes are too many for a line"));
    }
    if (is_last && !nlohmann::json::accept(line)) {
      result.torn = where + ": incomplete because its writer died; skipped";
      return result;
    }
    result.samples.push_back(parse_sample(line, where));
    begin = result.whole = std::min(end + 1, text.size());
  }
  return result;
}

SampleFile read_samples(const std::filesystem::path& path) {
  return parse_samples(text_of(path), path.string());
}

std::vector<Sample> latest(const std::vector<Sample>& samples) {
  using Place = std::tuple<std::string, std::string, int>;
  const auto place_of = [](const Sample& sample) {
    return Place(sample.study, sample.cell, sample.round);
  };
  std::map<Place, std::size_t> last;
  for (std::size_t i = 0; i < samples.size(); ++i) last[place_of(samples[i])] = i;
  std::vector<Sample> kept;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (last[place_of(samples[i])] == i) kept.push_back(samples[i]);
  }
  return kept;
}

SampleLog::SampleLog(const std::filesystem::path& path)
    : path_(path.string()), file_(open_log(path_)) {
  const std::string text = text_of(path);
  SampleFile read = parse_samples(text, path_);
  samples_ = std::move(read.samples);
  torn_ = std::move(read.torn);
  size_ = read.whole;
  cut();
  if (size_ > 0 && text[size_ - 1] != '\n') write("\n");
  sync(file_, path_);
  sync_folder_of(path);
}

void SampleLog::append(const Sample& sample) {
  const std::string line = to_json(sample);
  Sample read = parse_sample(line, path_);  // what a reader will find
  write(line + "\n");
  sync(file_, path_);
  samples_.push_back(std::move(read));
}

void SampleLog::write(const std::string& text) {
  try {
    write_all(file_.get(), bytes_of(text), path_);
  } catch (const std::exception&) {
    cut();  // a part of a line would spoil the next one
    throw;
  }
  size_ += text.size();
}

void SampleLog::cut() const {
  if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) throw_errno("bench: cut", path_);
}

}  // namespace lockstep::bench
