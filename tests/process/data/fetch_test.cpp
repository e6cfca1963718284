#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <stdlib.h>

#include "tests/formats/fetch/file_server.h"
#include "tests/process/command.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t kGzipHeader = 10;

/// Makes the file as its authors published it: Debian's lacks the name and has another time.
void restore(const std::string& name, std::uint32_t time, const fs::path& folder) {
  const fs::path source = fs::path("/usr/share/datasets/fashion-mnist") / (name + ".gz");
  const std::string bytes = contents(source);
  std::ofstream out(folder / (name + ".gz"), std::ios::binary);
  out << std::string("\x1f\x8b\x08\x08", 4);
  for (const int shift : {0, 8, 16, 24}) out.put(static_cast<char>(time >> shift));
  out << std::string("\x00\x03", 2) << name << '\0' << bytes.substr(kGzipHeader);
}

/// Serves the real Fashion-MNIST by https on loopback.
class DataFetch : public ::testing::Test {
 protected:
  DataFetch()
      : certificate_(make_certificate(folder_.str(), "ours")),
        server_(served(), certificate_.certificate, certificate_.key) {
    trust(certificate_);
  }

  /// Lets the command, which inherits our environment, trust this authority alone.
  static void trust(const Certificate& authority) {
    ::setenv("SSL_CERT_FILE", authority.certificate.c_str(), 1);
  }

  fs::path served() const {
    const fs::path folder = folder_.file("served");
    fs::create_directory(folder);
    restore("train-images-idx3-ubyte", 1504176606, folder);
    restore("train-labels-idx1-ubyte", 1504176606, folder);
    restore("t10k-images-idx3-ubyte", 1504176627, folder);
    restore("t10k-labels-idx1-ubyte", 1504176627, folder);
    return folder;
  }

  Ended fetch(const std::string& flags = "") {
    const auto set = "data fetch fashion-mnist " + folder_.file("set");
    return run_command(words(set + " --mirror " + server_.address("") + " " + flags));
  }

  TemporaryFolder folder_;
  Certificate certificate_;
  FileServer server_;
};

TEST_F(DataFetch, BringsTheRealFilesAndKnowsThem) {
  const auto first = fetch().with_code(0);
  EXPECT_THAT(first.err, IsEmpty());
  EXPECT_THAT(first.out,
      HasSubstr("train-images-idx3-ubyte.gz: 26421880 bytes, downloaded, SHA-256 correct\n"));
  EXPECT_THAT(server_.requests(), SizeIs(4));
  const auto second = fetch("--json").with_code(0);
  EXPECT_THAT(server_.requests(), IsEmpty());
  for (const auto& file : nlohmann::json::parse(second.out)["files"]) {
    EXPECT_EQ(file["downloaded"], false);
  }
  EXPECT_THAT(fetch().out, HasSubstr("t10k-labels-idx1-ubyte.gz: 5148 bytes, already there"));
  const auto checked = run_command({"data", "check", "fashion-mnist", folder_.file("set")});
  EXPECT_EQ(checked.code(), 0) << checked.out;
  EXPECT_THAT(checked.out, HasSubstr("60000 images in 10 classes, 6000 in each"));
}

TEST_F(DataFetch, EndsWith3AtOtherBytes) {
  const auto labels = folder_.file("served/t10k-labels-idx1-ubyte.gz");
  std::fstream file(labels, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(100);
  file.put('x');
  file.close();
  const auto ended = fetch().with_code(3);
  EXPECT_THAT(ended.err, HasSubstr("t10k-labels-idx1-ubyte.gz: sends bytes of SHA-256 "));
  EXPECT_THAT(ended.err,
      EndsWith("must be 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5\n"));
  EXPECT_FALSE(fs::exists(folder_.file("set/t10k-labels-idx1-ubyte.gz")));
  EXPECT_TRUE(fs::exists(folder_.file("set/train-images-idx3-ubyte.gz")));
}

TEST_F(DataFetch, EndsWith4WithoutAFileOrACertificate) {
  std::ofstream(folder_.file("served/content")) << "x";
  const Words arguments = words(
      "data fetch mnist " + folder_.file("mnist") + " --mirror " + server_.address("status/404"));
  const auto missing = run_command(arguments).with_code(4);
  EXPECT_THAT(missing.err, HasSubstr("train-images-idx3-ubyte.gz: HTTP status 404"));
  trust(make_certificate(folder_.str(), "other"));
  EXPECT_THAT(run_command(arguments).with_code(4).err, HasSubstr("SSL certificate problem"));
}

}  // namespace
}  // namespace lockstep::testing
