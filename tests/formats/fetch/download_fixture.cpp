#include "tests/formats/fetch/download_fixture.h"

#include <fstream>
#include <iterator>
#include <random>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/checksum.h"

namespace lockstep::testing {
namespace {

constexpr std::size_t kBytes = 300'000;

std::string random_text() {
  std::mt19937 engine(1);
  std::string text(kBytes, ' ');
  for (char& letter : text) letter = static_cast<char>(engine() >> 24);
  return text;
}

/// Writes what the server gives, before it starts.
std::filesystem::path with_content(const TemporaryFolder& directory, const std::string& text) {
  directory.write("content", std::vector<std::uint8_t>(text.begin(), text.end()));
  return directory.path();
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

Origin::Origin() : content(random_text()), server(with_content(directory, content)) {}

Origin& DownloadTest::origin() {
  static Origin origin;
  return origin;
}

DownloadTest::DownloadTest()
    : target_(directory_.path() / "data" / "target"),
      content_(origin().content),
      server_(origin().server) {
  server_.requests();  // those of other tests
  options_.transfer.plain_on_loopback = true;
  options_.attempts = 3;
  options_.first_pause = std::chrono::milliseconds(1);
  options_.notice = [this](const std::string& text) { notices_.push_back(text); };
}

Download DownloadTest::wanted(const std::vector<std::string>& behaviours) const {
  Download wanted{.name = "set.bin",
      .addresses = {},
      .bytes = content_.size(),
      .sha256 = sha256_of_file(origin().directory.path() / "content")};
  for (const auto& behaviour : behaviours) {
    const bool whole = behaviour.starts_with("http");
    wanted.addresses.push_back(whole ? behaviour : server_.address(behaviour));
  }
  return wanted;
}

bool DownloadTest::bring(const std::vector<std::string>& behaviours) {
  return download(wanted(behaviours), target_, options_);
}

std::string DownloadTest::refusal(const std::vector<std::string>& behaviours) {
  return testing::message_of<std::exception>([&] { bring(behaviours); });
}

bool DownloadTest::is_complete() const {
  return std::distance(std::filesystem::directory_iterator(target_), {}) == 1 &&
         text_of(file()) == content_;
}

void DownloadTest::leave_part(const std::string& bytes) const {
  std::filesystem::create_directories(target_);
  std::ofstream(part(), std::ios::binary) << bytes;
}

}  // namespace lockstep::testing
