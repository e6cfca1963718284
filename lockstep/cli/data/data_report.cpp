#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>

#include "lockstep/cli/data/data_verbs.h"
#include "lockstep/formats/fetch/archive_path.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

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

void print_part(std::ostream& out, const data::PartReport& part) {
  const auto [least, most] = std::minmax_element(part.per_class.begin(), part.per_class.end());
  out << "  " << std::left << std::setw(10) << part.name << std::right << std::setw(10)
      << part.images << " images in " << part.per_class.size()
      << (part.per_class.size() == 1 ? " class, " : " classes, ");
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

Json size_json(const std::optional<ImageSize>& size) {
  if (!size) return nullptr;
  return {{"width", size->width}, {"height", size->height}};
}

Json files_json(const data::FilesReport& files) {
  return {{"jpeg", files.jpeg}, {"png", files.png}, {"other", files.other.count},
      {"other_endings", files.other.endings}, {"bad_exif", files.bad_exif},
      {"repeated", files.repeated}, {"across_parts", files.across_parts}, {"bytes", files.bytes}};
}

}  // namespace

void print_report(std::ostream& out, const data::SetReport& report) {
  out << report.set << " in " << shown_name(report.directory.string()) << '\n';
  for (const auto& part : report.parts) print_part(out, part);
  print_classes(out, report);
  if (report.smallest && report.largest) {
    out << "  " << report.smallest->width << " to " << report.largest->width << " pixels wide, "
        << report.smallest->height << " to " << report.largest->height << " high\n";
  }
  if (report.files) print_files(out, *report.files);
  print_bad(out, report);
}

void print_json_report(std::ostream& out, const data::SetReport& report) {
  Json object{{"v", 1}, {"set", report.set}, {"directory", report.directory.string()},
      {"images", images_of(report)}, {"parts", Json::array()}, {"classes", report.class_names},
      {"smallest", size_json(report.smallest)}, {"largest", size_json(report.largest)},
      {"files", report.files ? files_json(*report.files) : Json(nullptr)}, {"bad", Json::array()}};
  for (const auto& part : report.parts) {
    object["parts"].push_back(
        {{"name", part.name}, {"images", part.images}, {"per_class", part.per_class}});
  }
  for (const auto& bad : report.bad) {
    object["bad"].push_back({{"name", bad.name}, {"reason", bad.reason}});
  }
  // Names of classes and folders need not be UTF-8.
  out << object.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace lockstep::cli
