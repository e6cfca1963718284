#include "lockstep/cli/data/data.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unistd.h>

#include "bench/synthetic/synthetic_set.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/train/mains.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/text.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/download/fetch_set.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/formats/fetch/archive.h"
#include "lockstep/formats/output_file.h"

namespace lockstep::cli {
namespace {

/// The progress of a work on stderr, if that is a terminal: one line, ten times a second at most.
class DataProgress {
 public:
  explicit DataProgress(std::string what)
      : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1) {}
  DataProgress(const DataProgress&) = delete;
  DataProgress& operator=(const DataProgress&) = delete;

  /// Takes the line away.
  ~DataProgress() { clear(); }

  void show(std::uint64_t done, std::uint64_t of) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || of == 0 || now - last_ < kPause) return;
    last_ = now;
    shown_ = true;
    const auto percent = static_cast<double>(done) / static_cast<double>(of) * 100;
    std::cerr << kClearLine << what_ << ' ' << static_cast<int>(percent) << " % of " << of
              << std::flush;
  }

  /// Returns show() for those who count in signed numbers.
  auto shower() {
    return [this](std::int64_t done, std::int64_t of) {
      show(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(of));
    };
  }

  /// Prints a line of its own.
  void notice(const std::string& text) {
    clear();
    std::cerr << "lockstep: " << text << std::endl;
  }

 private:
  static constexpr auto kPause = std::chrono::milliseconds(100);
  static constexpr const char* kClearLine = "\r\x1b[K";

  void clear() {
    if (shown_) std::cerr << kClearLine << std::flush;
    shown_ = false;
  }

  std::string what_;
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

/// A request to one of the verbs, with what each of them takes.
struct DataRequest {
  std::string set, directory;
  DataPlace place;
  std::string mirror;
  std::string bad_list;
  int workers = usable_cpu_count();
  data::TensorChoice choice;
  data::SyntheticOptions synthetic;
  bool json = false;
};

using R = DataRequest;
using Json = nlohmann::ordered_json;

Flag<R> name_flag(const char* help) { return flag("NAME", "", help, &R::set).required(); }

Flag<R> folder_flag(const char* help) { return flag("DIR", "", help, &R::directory); }

Flag<R> json_flag() { return flag_on("--json", "print one JSON object", &R::json); }

/// Reads the command line; nothing if it asked for help, which is then printed.
std::optional<R> data_request(
    const std::string& verb, const FlagTable<R>& table, const std::vector<std::string>& arguments) {
  auto request = table.request(arguments, std::cout);
  if (request) request->place = data_place(verb, request->set, request->directory);
  return request;
}

// Refuses a place without a folder, and shows how to name one.
void check_has_folder(const std::string& verb, const DataPlace& place) {
  if (!place.directory.empty()) return;
  const auto& sets = data::checked_set_names();
  const bool is_set = std::find(sets.begin(), sets.end(), place.name) != sets.end();
  check(!is_set, "data ", verb, ": name the folder of ", place.name, ": ", place.name, ":DIR");
  throw InvalidArgument(concat("data ", verb, ": there is no set ", place.name,
      "; name a set and its folder, such as cifar100:", place.name, " (the sets are ", joined(sets),
      ")"));
}

constexpr const char* kFetchDescription =
    R"(Downloads a data set into DIR: mnist, fashion-mnist, cifar10, cifar100.

Only https is used, and every file must have its known size and SHA-256. An interrupted download
leaves DIR/.FILE.part, and the next one continues it. Archives are unpacked; files that are there
and right are left alone. Proxies are taken from https_proxy and similar variables, certificate
authorities from SSL_CERT_FILE if it is set.
)";

constexpr const char* kFetchExamples = R"(Examples:
  lockstep data fetch cifar100 /data/cifar100
  lockstep data fetch mnist /data/mnist --mirror https://files.example.org/mnist

Exit codes: 0 done or already there, 2 bad flags, 3 a file with other bytes, 4 no network or disk.)";

DownloadOptions options_of(DataProgress& progress) {
  DownloadOptions options;
  options.certificates = environment("SSL_CERT_FILE").value_or("");
  options.progress = [&progress](
                         std::uint64_t bytes, std::uint64_t of) { progress.show(bytes, of); };
  options.notice = [&progress](const std::string& text) { progress.notice(text); };
  return options;
}

void print_fetch(const DataRequest& request, const std::vector<data::FetchedFile>& files) {
  bool news = false;
  for (const auto& file : files) {
    news = news || file.downloaded;
    std::cout << file.name << ": " << file.bytes << " bytes, "
              << (file.downloaded ? "downloaded, SHA-256 correct"
                                  : "already there, SHA-256 correct")
              << '\n';
  }
  std::cout << request.place.name << (news ? " is in " : " was in ")
            << request.place.directory.string() << '\n';
}

void print_fetch_json(const DataRequest& request, const std::vector<data::FetchedFile>& files) {
  Json object{{"v", 1}, {"set", request.place.name},
      {"directory", request.place.directory.string()}, {"files", Json::array()}};
  for (const auto& file : files) {
    object["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"downloaded", file.downloaded}});
  }
  std::cout << object.dump() << '\n';
}

int data_fetch(const std::vector<std::string>& arguments) {
  const FlagTable<R> table({.verb = "data fetch",
                               .usage = "lockstep data fetch NAME DIR [--mirror URL] [--json]",
                               .description = kFetchDescription,
                               .footer = kFetchExamples},
      {{"Arguments",
           {name_flag("the set"), folder_flag("folder for its files; created if missing")}},
          {"Options", {flag("--mirror", "URL", "take the files from this folder only", &R::mirror),
                          json_flag()}}});
  const auto request = data_request("fetch", table, arguments);
  if (!request) return 0;
  const auto& set = data::known_set(request->place.name);
  check_has_folder("fetch", request->place);
  std::vector<data::FetchedFile> files;
  {
    DataProgress progress("fetch " + set.name);
    files = data::fetch_set(set, request->place.directory, request->mirror, options_of(progress));
  }
  (request->json ? print_fetch_json : print_fetch)(*request, files);
  return 0;
}

constexpr std::size_t kMostShown = 20;  // bad files and classes; --json and --bad-list have all

// By its letters: a setw would count the bytes of UTF-8.
std::string padded(const std::string& name, std::size_t width) {
  const auto letters = static_cast<std::size_t>(
      std::count_if(name.begin(), name.end(), [](char byte) { return (byte & '\xc0') != '\x80'; }));
  return name + std::string(width - std::min(width, letters), ' ');
}

std::int64_t images_of(const data::SetReport& report) {
  std::int64_t images = 0;
  for (const auto& part : report.parts) images += part.images;
  return images;
}

std::string shape_text(const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> words;
  for (const std::int64_t size : sizes) words.push_back(std::to_string(size));
  return words.empty() ? "one number" : joined(words, " x ");
}

void print_tensor(std::ostream& out, const data::TensorReport& tensor) {
  out << "    " << (tensor.is_target ? "target  " : "input   ") << padded(tensor.name, 20) << ' '
      << tensor.type << ", " << shape_text(tensor.sizes) << ", " << tensor.least << " to "
      << tensor.most << ", mean " << tensor.mean << '\n';
}

void print_part(std::ostream& out, const data::PartReport& part, bool are_tokens) {
  if (part.per_class.empty()) {
    out << "  " << std::left << std::setw(10) << part.name << std::right << std::setw(10)
        << part.images << (are_tokens ? " tokens\n" : " samples\n");
    return;
  }
  const auto [least, most] = std::minmax_element(part.per_class.begin(), part.per_class.end());
  out << "  " << std::left << std::setw(10) << part.name << std::right << std::setw(10)
      << part.images << (part.tensors.empty() ? " images in " : " samples in ")
      << part.per_class.size() << (part.per_class.size() == 1 ? " class, " : " classes, ");
  if (*least == *most) {
    out << *least << " in each\n";
  } else {
    out << *least << " to " << *most << " in each\n";
  }
}

void print_classes(std::ostream& out, const data::SetReport& report) {
  if (report.class_names.size() > kMostShown) return;
  for (std::size_t i = 0; i < report.class_names.size(); ++i) {
    out << "    " << padded(shown_name(report.class_names[i]), 28);
    for (const auto& part : report.parts) {
      out << ' ' << part.name << ' ' << part.per_class[i];
    }
    out << '\n';
  }
}

void print_files(std::ostream& out, const data::FilesReport& files) {
  out << "  " << files.jpeg << " JPEG and " << files.png << " PNG files, " << files.bytes
      << " bytes\n";
  const std::string endings = files.other.endings_text();
  if (files.other.count > 0)
    out << "  " << files.other.count << " other files, ignored" << (endings.empty() ? "" : ": ")
        << endings << '\n';
  if (files.bad_exif > 0) {
    out << "  " << files.bad_exif << " images whose EXIF orientation cannot be read\n";
  }
  if (files.repeated > 0) {
    out << "  " << files.repeated << " images are there more than once, " << files.across_parts
        << " of them in two parts\n";
  }
}

void print_bad(std::ostream& out, const data::SetReport& report) {
  out << "  " << report.bad.size() << " bad\n";
  for (std::size_t i = 0; i < std::min(report.bad.size(), kMostShown); ++i) {
    out << "    " << report.bad[i].name << ": " << report.bad[i].reason << '\n';
  }
  if (report.bad.size() > kMostShown) {
    out << "    and " << report.bad.size() - kMostShown << " more: --bad-list FILE lists all\n";
  }
}

Json tensor_json(const data::TensorReport& tensor) {
  return {{"name", tensor.name}, {"is_target", tensor.is_target}, {"type", tensor.type},
      {"sizes", tensor.sizes}, {"least", tensor.least}, {"mean", tensor.mean},
      {"most", tensor.most}, {"nonfinite", tensor.nonfinite}};
}

Json size_json(const std::optional<ImageSize>& size) {
  if (!size) return nullptr;
  return {{"width", size->width}, {"height", size->height}};
}

Json files_json(const data::FilesReport& files) {
  return {{"jpeg", files.jpeg}, {"png", files.png}, {"other", files.other.count},
      {"other_endings", files.other.endings}, {"bad_exif", files.bad_exif},
      {"repeated", files.repeated}, {"across_parts", files.across_parts}, {"bytes", files.bytes}};
}

void print_json_report(std::ostream& out, const data::SetReport& report) {
  Json object{{"v", 1}, {"set", report.set}, {"directory", report.directory.string()},
      {"images", images_of(report)}, {"parts", Json::array()}, {"classes", report.class_names},
      {"smallest", size_json(report.smallest)}, {"largest", size_json(report.largest)},
      {"files", report.files ? files_json(*report.files) : Json(nullptr)},
      {"remarks", report.remarks}, {"bad", Json::array()}};
  for (const auto& part : report.parts) {
    Json own{{"name", part.name}, {"images", part.images}, {"per_class", part.per_class}};
    for (const auto& tensor : part.tensors) own["tensors"].push_back(tensor_json(tensor));
    object["parts"].push_back(std::move(own));
  }
  for (const auto& bad : report.bad) {
    object["bad"].push_back({{"name", bad.name}, {"reason", bad.reason}});
  }
  // Names of classes and folders need not be UTF-8.
  out << object.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

constexpr const char* kCheckDescription =
    R"(Reads every file of a data set, as training would, and reports what it holds.

The sets are mnist, fashion-mnist, cifar10, cifar100 and images, a folder of class folders with
JPEG and PNG files, perhaps in train, val and test. Every image is decoded. And tensors, tokens and
text, of which DIR may be files and folders with commas between them: all their numbers are read.
)";

constexpr const char* kCheckExamples = R"(Examples:
  lockstep data check cifar10 /data/cifar10
  lockstep data check images:/data/flowers --workers 4 --bad-list bad.txt
  lockstep data check fashion-mnist --json
  lockstep data check tensors:train.safetensors,test.safetensors

Exit codes: 0 all files are good, 2 bad flags, 3 some are bad, 4 no permission or disk.)";

void write_list(OutputFile& file, const data::SetReport& report) {
  for (const auto& bad : report.bad) file.write(bad.name + "\t" + bad.reason + "\n");
  file.close();
}

int data_check(const std::vector<std::string>& arguments) {
  const FlagTable<R> table({.verb = "data check",
                               .usage = "lockstep data check NAME DIR [flags]",
                               .description = kCheckDescription,
                               .footer = kCheckExamples},
      {{"Arguments", {name_flag("the set, or NAME:DIR"), folder_flag("folder of its files")}},
          {"Options",
              {flag("--workers", "N", "threads that decode images", &R::workers)
                      .within(1, 1024)
                      .usually("as many as cores"),
                  flag("--inputs", "NAME,NAME", "of tensors: those that a model takes", &R::choice,
                      &data::TensorChoice::inputs)
                      .usually("all that are no targets"),
                  flag("--targets", "NAME,NAME", "of tensors: those that are to be learned",
                      &R::choice, &data::TensorChoice::targets)
                      .usually("those with names of targets"),
                  flag("--bad-list", "FILE",
                      "write the bad files there: name, tab, reason; a new file", &R::bad_list),
                  json_flag()}}});
  auto request = data_request("check", table, arguments);
  if (!request) return 0;
  auto& [name, directory] = request->place;
  if (directory.empty() && name == "fashion-mnist") directory = data::kFashionMnistDirectory;
  check_has_folder("check", request->place);
  // Before hours of work, not after.
  std::optional<OutputFile> list;
  if (!request->bad_list.empty()) list.emplace(request->bad_list);
  data::SetReport report;
  {
    DataProgress progress("check " + name);
    report = data::check_set(name, directory,
        {.workers = request->workers, .progress = progress.shower(), .choice = request->choice});
  }
  if (list) write_list(*list, report);
  (request->json ? print_json_report : print_report)(std::cout, report);
  return static_cast<int>(report.bad.empty() ? ExitCode::kDone : ExitCode::kData);
}

constexpr const char* kSynthesizeDescription =
    R"(Draws a data set in the format of the real one: mnist, fashion-mnist, cifar10, cifar100, images.

The class is a shape, and with more than 10 classes the texture behind it; colours, places and
sizes are drawn at will. A convolutional net learns it in some epochs, a linear model does not.
The same flags give the same pixels on every machine.
)";

constexpr const char* kSynthesizeExamples = R"(Examples:
  lockstep data synthesize cifar100 /tmp/cifar100 --train 5000 --test 1000
  lockstep data synthesize images /tmp/images --classes 20 --train 2000 --test 500
  lockstep data synthesize mnist /tmp/mnist --gzip)";

void read_size(DataRequest& request, const FlagSpec& flag, const std::string& text) {
  const auto sides = split(text, 'x');
  const auto width = parse_number<std::int64_t>(sides.front());
  const auto height = parse_number<std::int64_t>(sides.back());
  check(sides.size() == 2 && width && height, flag.verb, ": ", flag.name,
      " must be WIDTHxHEIGHT, such as 224x224: ", text);
  request.synthetic.size = ImageSize{*width, *height};
}

void print_synthesize(const DataRequest& request, const data::SyntheticSummary& summary) {
  std::cout << request.place.directory.string() << ": " << request.place.name << ", "
            << summary.train << " images to train with and " << summary.test << " to test with in "
            << summary.classes << " classes; " << summary.files << " files, " << summary.bytes
            << " bytes\n";
}

void print_synthesize_json(const DataRequest& request, const data::SyntheticSummary& summary) {
  const Json object{{"v", 1}, {"set", request.place.name},
      {"directory", request.place.directory.string()}, {"train", summary.train},
      {"test", summary.test}, {"classes", summary.classes}, {"seed", request.synthetic.seed},
      {"files", summary.files}, {"bytes", summary.bytes}};
  std::cout << object.dump() << '\n';
}

int data_synthesize(const std::vector<std::string>& arguments) {
  using Set = data::SyntheticOptions;
  const FlagTable<R> table({.verb = "data synthesize",
                               .usage = "lockstep data synthesize NAME DIR [flags]",
                               .description = kSynthesizeDescription,
                               .footer = kSynthesizeExamples},
      {{"Arguments",
           {name_flag("the set"), folder_flag("folder for its files; created if missing, else "
                                              "empty")}},
          {"Options",
              {flag("--train", "N", "images to train with", &R::synthetic, &Set::train)
                      .usually("as many as the real set has; images: 2000"),
                  flag("--test", "N", "images to test with, in images the folder val",
                      &R::synthetic, &Set::test)
                      .usually("the real set's; images: 500"),
                  flag("--classes", "C", "of images: 2 to 100", &R::synthetic, &Set::classes)
                      .usually(20),
                  flag_by<R>("--size", "WxH", "of images: pixels of each", read_size)
                      .usually("shorter side 160 to 320"),
                  flag("--seed", "S", "draws another set", &R::synthetic, &Set::seed),
                  flag_on("--gzip", "of mnist, fashion-mnist: files with .gz", &R::synthetic,
                      &Set::gzip),
                  json_flag()}}});
  auto request = data_request("synthesize", table, arguments);
  if (!request) return 0;
  const auto& [name, directory] = request->place;
  check_has_folder("synthesize", request->place);
  data::SyntheticSummary summary;
  {
    DataProgress progress("synthesize " + name);
    request->synthetic.progress = progress.shower();
    summary = data::write_synthetic_set(name, directory, request->synthetic);
  }
  (request->json ? print_synthesize_json : print_synthesize)(*request, summary);
  return 0;
}

// What reads images for training needs LibTorch.
int data_show(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{kShowData};
  words.insert(words.end(), arguments.begin(), arguments.end());
  become("data show", sibling_program("data show", "lockstep-train"), words);
}

using DataVerb = int (*)(const std::vector<std::string>&);

const std::map<std::string, DataVerb> kDataVerbs{{"fetch", data_fetch}, {"check", data_check},
    {"synthesize", data_synthesize}, {"show", data_show}};

constexpr const char* kDataOverview =
    R"(Usage: lockstep data fetch|check|synthesize|show NAME DIR [flags]

Downloads, checks, generates or shows a data set.

  fetch NAME DIR                    download a set, each file verified by its SHA-256
  check NAME DIR                    read every file and report what the set holds, and which are bad
  synthesize NAME DIR               generate a set to learn from, in the real one's format, offline
  show NAME DIR --output FILE       make a page of its images, what augmentation makes of them, and each rank's share

Examples:
  lockstep data fetch cifar100 /data/cifar100
  lockstep data check images:/data/flowers --bad-list bad.txt
  lockstep data synthesize cifar100 /tmp/cifar100 --train 5000 --test 1000
  lockstep data show images:/data/flowers --augment timm --output flowers.html
  lockstep data fetch --help                         all flags of one of them
)";

}  // namespace

void print_report(std::ostream& out, const data::SetReport& report) {
  out << report.set << " in " << shown_name(report.directory.string()) << '\n';
  for (const auto& part : report.parts) {
    print_part(out, part, report.set == "tokens" || report.set == "text");
    for (const auto& tensor : part.tensors) print_tensor(out, tensor);
  }
  print_classes(out, report);
  if (report.smallest && report.largest) {
    out << "  " << report.smallest->width << " to " << report.largest->width << " pixels wide, "
        << report.smallest->height << " to " << report.largest->height << " high\n";
  }
  if (report.files) print_files(out, *report.files);
  for (const std::string& remark : report.remarks) out << "  " << remark << '\n';
  print_bad(out, report);
}

int data(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::cerr << kDataOverview;
    return static_cast<int>(ExitCode::kUsage);
  }
  const std::string& word = arguments.front();
  if (word == "--help" || word == "-h") {
    std::cout << kDataOverview;
    return 0;
  }
  const auto verb = kDataVerbs.find(word);
  if (verb != kDataVerbs.end()) return verb->second({arguments.begin() + 1, arguments.end()});
  std::vector<std::string> known;
  for (const auto& each : kDataVerbs) known.push_back(each.first);
  throw InvalidArgument(concat("data: there is no ", word, did_you_mean(word, known),
      " (choose fetch, check, synthesize or show)"));
}

}  // namespace lockstep::cli
