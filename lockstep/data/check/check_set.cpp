#include "lockstep/data/check/check_set.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/check/check_tables.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/cifar.h"
#include "lockstep/formats/image/image_reader.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

/// A part of the set on its way through the workers.
struct Part {
  std::string name;
  ImageFolder folder;
};

/// The facts about one file.
struct FileFacts {
  ImageInfo info;
  ImageSize size;  ///< as it is read
  std::uint64_t bytes = 0;
  std::string sha256;
  std::string reason;  ///< why it is bad, or empty
};

/// Takes the name out of a message that begins with it.
std::string without_name(const std::string& name, const std::string& message) {
  return message.starts_with(name + ": ") ? message.substr(name.size() + 2) : message;
}

BadFile bad_file(const fs::path& path, const std::string& message) {
  return {path.string(), without_name(path.string(), message)};
}

/// Reads and decodes one file.
FileFacts facts_of(const ImageFolder& folder, std::int64_t index) {
  FileFacts facts;
  const std::string name = folder.name(index);
  try {
    const auto bytes = folder.open(index);
    facts.bytes = bytes.size();
    const ImageReader reader(bytes, name);
    facts.info = reader.info();
    facts.size = reader.size();
    reader.read();
    Sha256 digest;
    digest.update(bytes);
    facts.sha256 = digest.finish();
  } catch (const DataError& error) {
    facts.reason = without_name(name, error.what());
  }
  return facts;
}

/// The sum of the facts of all files, taken in from several threads.
class Tally {
 public:
  Tally(SetReport& report, const CheckOptions& options, std::int64_t files)
      : report_(report), options_(options), all_(files) {
    report_.files.emplace();
  }

  void begin(const Part& part) {
    report_.parts.push_back({part.name, 0, {}});
    report_.parts.back().per_class.resize(static_cast<std::size_t>(part.folder.classes()));
    report_.files->other += part.folder.other_files();
  }

  void add(const Part& part, std::int64_t index, const FileFacts& facts) {
    const std::lock_guard lock(mutex_);
    if (facts.reason.empty()) {
      add_good(part.folder.label(index), facts);
    } else {
      report_.bad.push_back({part.folder.name(index), facts.reason});
    }
    if (options_.progress) options_.progress(++done_, all_);
  }

 private:
  void add_good(std::int64_t label, const FileFacts& facts) {
    PartReport& part = report_.parts.back();
    FilesReport& files = *report_.files;
    ++part.images;
    ++part.per_class[static_cast<std::size_t>(label)];
    ++(facts.info.kind == ImageKind::kPng ? files.png : files.jpeg);
    files.bad_exif += facts.info.exif.is_damaged ? 1 : 0;
    files.bytes += facts.bytes;
    const ImageSize size = facts.size;
    const ImageSize least = report_.smallest.value_or(size);
    const ImageSize most = report_.largest.value_or(size);
    report_.smallest = {std::min(least.width, size.width), std::min(least.height, size.height)};
    report_.largest = {std::max(most.width, size.width), std::max(most.height, size.height)};
    const auto [twin, first] = seen_in_.emplace(facts.sha256, report_.parts.size());
    if (first) return;
    ++files.repeated;
    files.across_parts += twin->second != report_.parts.size() ? 1 : 0;
  }

  SetReport& report_;
  const CheckOptions& options_;
  std::int64_t all_;
  std::int64_t done_ = 0;
  std::mutex mutex_;
  std::unordered_map<std::string, std::size_t> seen_in_;  // SHA-256: the part
};

/// Calls the body for each index below the count, in several threads; the first exception ends all
/// of them and comes out.
void for_each_index(
    std::int64_t count, int workers, const std::function<void(std::int64_t)>& body) {
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::int64_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < workers; ++i) threads.emplace_back(work);
  }
  if (failure) std::rethrow_exception(failure);
}

std::vector<Part> parts_of(const std::filesystem::path& directory) {
  const ImageFolders folders = open_image_folders(directory);
  const bool alone = folders.train.directory() == directory;
  std::vector<Part> parts{{alone ? "all" : "train", folders.train}};
  if (folders.validation) parts.push_back({"val", *folders.validation});
  if (folders.test) parts.push_back({"test", *folders.test});
  return parts;
}

void check_parts(SetReport& report, const std::vector<Part>& parts, const CheckOptions& options) {
  std::int64_t files = 0;
  for (const Part& part : parts) files += part.folder.size();
  Tally tally(report, options, files);
  report.class_names = parts[0].folder.class_names();
  for (const Part& part : parts) {
    tally.begin(part);
    for_each_index(part.folder.size(), options.workers,
        [&](std::int64_t index) { tally.add(part, index, facts_of(part.folder, index)); });
  }
  // Workers come in any order.
  std::sort(report.bad.begin(), report.bad.end(),
      [](const BadFile& one, const BadFile& other) { return one.name < other.name; });
}

/// Counts what was read into the report.
void add_part(SetReport& report, bool train, const InMemoryImages& set) {
  PartReport part{train ? "train" : "test", set.size(), {}};
  part.per_class.resize(static_cast<std::size_t>(set.classes()));
  for (std::int64_t i = 0; i < set.size(); ++i) {
    ++part.per_class[static_cast<std::size_t>(set.label(i))];
  }
  report.parts.push_back(std::move(part));
  report.smallest = ImageSize{set.shape().width, set.shape().height};
  report.largest = report.smallest;
}

/// Looks at CIFAR's files one by one, as reading a part ends at its first bad one.
std::vector<BadFile> bad_cifar_files(const fs::path& directory, bool train, bool hundred) {
  std::vector<BadFile> bad;
  for (const fs::path& path : cifar_files(directory, train, hundred)) {
    try {
      read_cifar({&path, 1}, hundred ? CifarVariant::kCifar100 : CifarVariant::kCifar10);
    } catch (const DataError& error) {
      bad.push_back(bad_file(path, error.what()));
    }
  }
  return bad;
}

void check_images(SetReport& report, const CheckOptions& options) {
  std::vector<Part> parts;
  try {
    parts = parts_of(report.directory);
  } catch (const DataError& error) {
    report.bad.push_back({report.directory.string(), error.what()});
    return;
  }
  check_parts(report, parts, options);
}

void check_mnist(SetReport& report, bool fashion) {
  for (const bool train : {true, false}) {
    try {
      const auto read = fashion ? fashion_mnist : mnist;
      add_part(report, train, read(report.directory, train));
    } catch (const DataError& error) {
      const std::string message = error.what();
      const auto colon = message.find(": ");
      report.bad.push_back(bad_file(message.substr(0, colon), message));
    }
  }
}

void check_cifar(SetReport& report, bool hundred) {
  for (const bool train : {true, false}) {
    try {
      add_part(report, train, (hundred ? cifar100 : cifar10)(report.directory, train));
    } catch (const DataError& error) {
      auto bad = bad_cifar_files(report.directory, train, hundred);
      if (bad.empty()) bad.push_back(bad_file(report.directory, error.what()));
      report.bad.insert(report.bad.end(), bad.begin(), bad.end());
    }
  }
}

}  // namespace

const std::vector<std::string>& checked_set_names() {
  static const std::vector<std::string> kNames{
      "mnist", "fashion-mnist", "cifar10", "cifar100", "images", "tensors", "tokens", "text"};
  return kNames;
}

SetReport check_set(
    const std::string& set, const std::filesystem::path& directory, const CheckOptions& options) {
  check(options.workers > 0, "data check: workers must be positive: ", options.workers);
  const bool has_choice = !options.choice.inputs.empty() || !options.choice.targets.empty();
  check(set == "tensors" || !has_choice,
      "data check: --inputs and --targets are for tensors:PATH; ", set, " has its own");
  SetReport report{.set = set, .directory = directory};
  if (set == "mnist" || set == "fashion-mnist") {
    check_mnist(report, set == "fashion-mnist");
  } else if (set == "cifar10" || set == "cifar100") {
    check_cifar(report, set == "cifar100");
  } else if (set == "images") {
    check_images(report, options);
  } else if (set == "tensors" || set == "tokens" || set == "text") {
    check_tables(report, options);
  } else {
    throw InvalidArgument(
        concat("data check: there is no set ", set, "; there are ", joined(checked_set_names())));
  }
  return report;
}

}  // namespace lockstep::data
