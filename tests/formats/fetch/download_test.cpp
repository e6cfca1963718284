#include "lockstep/formats/fetch/download.h"

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include <random>
#include <sys/file.h>
#include <system_error>

#include "tests/formats/fetch/file_server.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/checksum.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t kBytes = 300'000;

std::string random_text() {
  std::mt19937 engine(1);
  std::string text(kBytes, ' ');
  for (char& letter : text) letter = static_cast<char>(engine() >> 24);
  return text;
}

/// Writes what the server gives, before it starts.
fs::path with_content(const testing::TemporaryFolder& directory, const std::string& text) {
  directory.write("content", std::vector<std::uint8_t>(text.begin(), text.end()));
  return directory.path();
}

/// A server of some random bytes, started once for all tests that ask for one.
struct Origin {
  testing::TemporaryFolder directory;
  std::string content = random_text();
  testing::FileServer server{with_content(directory, content)};
};

/// Downloads what the server has into a folder of its own.
class DownloadTest : public ::testing::Test {
 protected:
  DownloadTest() {
    server_.requests();  // those of other tests
    options_.plain_on_loopback = true;
    options_.attempts = 3;
    options_.first_pause = std::chrono::milliseconds(1);
    options_.notice = [this](const std::string& text) { notices_.push_back(text); };
  }

  static Origin& origin() {
    static Origin origin;
    return origin;
  }

  /// Describes the content as it is, at these behaviours of the server.
  Download wanted(const std::vector<std::string>& behaviours) const {
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

  /// Brings it; pauses are short, and there are three attempts at each address.
  bool bring(const std::vector<std::string>& behaviours) {
    return download(wanted(behaviours), target_, options_);
  }

  /// Returns the message that this ends with.
  std::string refusal(const std::vector<std::string>& behaviours) {
    return testing::message_of<std::exception>([&] { bring(behaviours); });
  }

  /// Returns whether the file is there and right, and nothing else.
  bool is_complete() const {
    return std::distance(fs::directory_iterator(target_), {}) == 1 &&
           testing::contents(file()) == content_;
  }

  fs::path file() const { return target_ / "set.bin"; }
  fs::path part() const { return target_ / ".set.bin.part"; }

  /// Leaves a part as a run before would have.
  void leave_part(const std::string& bytes) const {
    fs::create_directories(target_);
    std::ofstream(part(), std::ios::binary) << bytes;
  }

  testing::TemporaryFolder directory_;
  fs::path target_ = directory_.path() / "data" / "target";
  const std::string& content_ = origin().content;
  testing::FileServer& server_ = origin().server;
  DownloadOptions options_;
  std::vector<std::string> notices_;
};

TEST_F(DownloadTest, BringsAFileAndThenKnowsIt) {
  EXPECT_TRUE(bring({"good"}));
  EXPECT_TRUE(is_complete());
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms(0644));
  EXPECT_THAT(server_.requests(), ElementsAre("/good - -"));
  EXPECT_FALSE(bring({"good"}));
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(DownloadTest, TellsHowFarItIs) {
  std::uint64_t last = 0;
  options_.progress = [&](std::uint64_t bytes, std::uint64_t of) {
    EXPECT_GT(bytes, last);
    EXPECT_EQ(of, content_.size());
    last = bytes;
  };
  bring({"good"});
  EXPECT_EQ(last, content_.size());
}

TEST_F(DownloadTest, LeavesAnotherFileOfThatName) {
  fs::create_directories(target_);
  std::ofstream(file()) << "mine";
  EXPECT_THROW(bring({"good"}), DataError);
  EXPECT_THAT(refusal({"good"}), HasSubstr("set.bin: already exists, but its SHA-256 is"));
  EXPECT_EQ(fs::file_size(file()), 4U);
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(DownloadTest, BringsTheWholeFileWhateverIsThereAndHoweverTheServerBehaves) {
  using Requests = std::vector<std::string>;
  struct Case {
    std::string part;  // of a run before; empty: none
    std::string behaviour;
    ::testing::Matcher<const Requests&> requests;
  };
  const std::string wrong(content_.size() + 1, 'x');
  for (const auto& [part, behaviour, expected] :
      std::vector<Case>{{content_.substr(0, 123'456), "good", ElementsAre("/good bytes=123456- -")},
          {content_, "good", IsEmpty()}, {wrong, "good", ElementsAre("/good - -")},
          {wrong.substr(1), "good", ElementsAre("/good - -")},
          {content_.substr(0, 10), "no_such_range", SizeIs(2)},
          {"", "cut/100000",
              ElementsAre("/cut/100000 - -", "/cut/100000 bytes=100000- \"first\"",
                  "/cut/100000 bytes=200000- \"first\"")},
          {"", "cut_without_ranges/2", SizeIs(3)},
          {"", "changed", ElementsAre("/changed - -", "/changed bytes=150000- \"first\"")},
          // Its tag does not vouch for every byte.
          {"", "weak", ElementsAre("/weak - -", "/weak bytes=150000- -")},
          {"", "busy/2", SizeIs(3)}, {"", "compressed", SizeIs(1)}}) {
    SCOPED_TRACE(concat(part.size(), " bytes are there, ", behaviour));
    fs::remove_all(target_);
    notices_.clear();
    if (!part.empty()) leave_part(part);
    EXPECT_TRUE(bring({behaviour}));
    EXPECT_TRUE(is_complete());
    const Requests requests = server_.requests();
    EXPECT_THAT(requests, expected);
    EXPECT_EQ(notices_.size(), std::max<std::size_t>(1, requests.size()) - 1);
  }
}

TEST_F(DownloadTest, BeginsAnewIfThePartIsToBlame) {
  leave_part(std::string(1000, 'x'));
  EXPECT_TRUE(bring({"good"}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(server_.requests(), ElementsAre("/good bytes=1000- -", "/good - -"));
  ASSERT_THAT(notices_, SizeIs(1));
  EXPECT_THAT(notices_[0], HasSubstr("trying again from its start"));
}

TEST_F(DownloadTest, RefusesAPartThatItDidNotAskFor) {
  EXPECT_THAT(refusal({"other_part"}), HasSubstr("sent another part than it was asked for"));
  EXPECT_EQ(fs::file_size(part()), 100U);
}

TEST_F(DownloadTest, GivesUpAfterItsAttempts) {
  EXPECT_THROW(bring({"busy/3"}), std::system_error);
  EXPECT_THAT(server_.requests(), SizeIs(3));
  EXPECT_THAT(refusal({"status/500"}), HasSubstr("/status/500: HTTP status 500"));
}

TEST_F(DownloadTest, DoesNotTryAgainWhatCannotPass) {
  EXPECT_EQ(
      refusal({"status/404"}), "download " + server_.address("status/404") + ": HTTP status 404");
  EXPECT_THAT(server_.requests(), SizeIs(1));
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_EQ(fs::file_size(part()), 0U);  // nothing of the error page
}

TEST_F(DownloadTest, AsksTheNextAddress) {
  EXPECT_TRUE(bring({"status/404", "wrong", "good"}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(server_.requests(), ElementsAre("/status/404 - -", "/wrong - -", "/good - -"));
  ASSERT_THAT(notices_, SizeIs(2));
  EXPECT_THAT(notices_[0], HasSubstr("HTTP status 404; trying the next address"));
  EXPECT_THAT(notices_[1], HasSubstr("; trying the next address"));
}

TEST_F(DownloadTest, KeepsAcrossAddressesWhatCame) {
  options_.attempts = 1;
  EXPECT_TRUE(bring({"cut/100000", "good"}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(server_.requests(), ElementsAre("/cut/100000 - -", "/good bytes=100000- -"));
}

TEST_F(DownloadTest, RefusesWrongContentWithBothHashes) {
  EXPECT_THROW(bring({"wrong"}), DataError);
  const std::string text = refusal({"wrong"});
  EXPECT_THAT(text, HasSubstr("/wrong: sends bytes of SHA-256 "));
  EXPECT_THAT(text, HasSubstr(" where it must be " + wanted({"good"}).sha256));
  EXPECT_TRUE(fs::is_empty(target_));
}

TEST_F(DownloadTest, RefusesWrongSizes) {
  EXPECT_THAT(
      refusal({"shorter"}), HasSubstr("/shorter: has 299999 bytes where there must be 300000"));
  EXPECT_THAT(
      refusal({"longer"}), HasSubstr("/longer: has 300001 bytes where there must be 300000"));
  EXPECT_TRUE(fs::is_empty(target_));
}

TEST_F(DownloadTest, L7RefusesAWrongLengthBeforeTheFirstByte) {
  options_.slow_time = std::chrono::seconds(1);
  EXPECT_THAT(refusal({"silent_after_length/299999"}), HasSubstr("has 299999 bytes where"));
  EXPECT_THAT(server_.requests(), ElementsAre("/silent_after_length/299999 - -"));
  leave_part(content_.substr(0, 100'000));
  EXPECT_THAT(refusal({"silent_after_range/300001"}), HasSubstr("has 300001 bytes where"));
  EXPECT_THAT(server_.requests(), ElementsAre("/silent_after_range/300001 bytes=100000- -"));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(DownloadTest, L7TriesOnceMoreWhereNothingComes) {
  options_.slow_time = std::chrono::seconds(1);
  EXPECT_THAT(refusal({"silent_after_length/300000"}), HasSubstr("Operation too slow"));
  EXPECT_THAT(server_.requests(), SizeIs(2));
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("transferred the last 1 seconds")));
  EXPECT_LE(DownloadOptions().slow_time, std::chrono::seconds(15));
}

TEST_F(DownloadTest, EndsABodyWithoutEnd) {
  EXPECT_THROW(bring({"endless"}), DataError);
  EXPECT_TRUE(fs::is_empty(target_));
}

TEST_F(DownloadTest, EndsWhatIsTooSlow) {
  options_.attempts = 1;
  options_.slow_time = std::chrono::seconds(1);
  EXPECT_THAT(refusal({"slow"}), HasSubstr("Operation too slow"));
}

TEST_F(DownloadTest, NamesAServerThatIsNotThere) {
  options_.attempts = 2;
  EXPECT_THAT(refusal({"http://127.0.0.1:1/x"}), HasSubstr("Failed to connect to 127.0.0.1"));
  EXPECT_THAT(notices_, SizeIs(1));
}

TEST_F(DownloadTest, NeverFollowsToPlainHttpOrFiles) {
  for (const std::string& target : {server_.address("good"), std::string("file:///etc/passwd")}) {
    EXPECT_THAT(refusal({"redirect_to/" + target}), HasSubstr("not supported or disabled"));
  }
  EXPECT_THAT(server_.requests(), SizeIs(2));
}

TEST_F(DownloadTest, AsksOnlyByHttps) {
  const auto download_from = [&](const std::string& address) {
    Download wanted = this->wanted({"good"});
    wanted.addresses = {address};
    download(wanted, target_, options_);
  };
  options_.plain_on_loopback = false;
  EXPECT_THROW(bring({"good"}), InvalidArgument);
  EXPECT_THAT(refusal({"good"}), HasSubstr("only https is taken: http://127.0.0.1"));
  options_.plain_on_loopback = true;
  for (const char* address :
      {"http://192.0.2.1/x", "ftp://127.0.0.1/x", "file:///etc/passwd", "no address"}) {
    EXPECT_THROW(download_from(address), InvalidArgument) << address;
  }
  EXPECT_THAT(refusal({"https://user:secret@127.0.0.1/x"}), HasSubstr("must hold no password"));
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(DownloadTest, FollowsNoLinkInPlaceOfItsPart) {
  fs::create_directories(target_);
  fs::create_symlink(directory_.path() / "victim", part());
  EXPECT_THROW(bring({"good"}), std::system_error);
  EXPECT_FALSE(fs::exists(directory_.path() / "victim"));
  fs::remove(part());
  std::ofstream(directory_.path() / "victim") << "keep";
  fs::create_hard_link(directory_.path() / "victim", part());
  EXPECT_THAT(refusal({"good"}), HasSubstr("must be a regular file of yours"));
  EXPECT_EQ(fs::file_size(directory_.path() / "victim"), 4U);
}

TEST_F(DownloadTest, WaitsForNoOtherDownload) {
  leave_part("");
  const FileDescriptor other(::open(part().c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  EXPECT_THAT(refusal({"good"}), HasSubstr("another process is downloading it"));
}

TEST_F(DownloadTest, NeedsToKnowWhatItWants) {
  const Download good = wanted({"good"});
  for (void (*const spoil)(Download&) :
      {+[](Download& wrong) { wrong.sha256.pop_back(); }, +[](Download& wrong) { wrong.bytes = 0; },
          +[](Download& wrong) { wrong.addresses.clear(); },
          +[](Download& wrong) { wrong.name = "../set.bin"; }}) {
    Download wrong = good;
    spoil(wrong);
    EXPECT_THROW(download(wrong, target_, options_), InvalidArgument);
  }
}

/// A server of the same bytes that speaks https.
struct SecureOrigin {
  explicit SecureOrigin(const std::filesystem::path& folder)
      : certificate(testing::make_certificate(folder, "ours")),
        server(folder, certificate.certificate, certificate.key) {}

  testing::Certificate certificate;
  testing::FileServer server;
};

class DownloadTls : public DownloadTest {
 protected:
  DownloadTls() : secure_(secure_origin().server) {
    options_.plain_on_loopback = false;
    options_.certificates = secure_origin().certificate.certificate;
    secure_.requests();  // those of other tests
  }

  static SecureOrigin& secure_origin() {
    static SecureOrigin secure(origin().directory.path());
    return secure;
  }

  std::string secure(const std::string& behaviour) const { return secure_.address(behaviour); }

  testing::FileServer& secure_;
};

TEST_F(DownloadTls, RefusesACertificateThatNobodyVouchesFor) {
  options_.attempts = 1;
  options_.certificates.clear();
  EXPECT_THAT(refusal({secure("good")}), HasSubstr("SSL certificate problem"));
  options_.certificates = testing::make_certificate(directory_.path(), "other").certificate;
  EXPECT_THAT(refusal({secure("good")}), HasSubstr("SSL certificate problem"));
}

TEST_F(DownloadTls, RefusesACertificateOfAnotherName) {
  std::string address = secure("good");
  address.replace(address.find("127.0.0.1"), 9, "localhost");
  EXPECT_THAT(refusal({address}), HasSubstr("no alternative certificate subject name matches"));
}

TEST_F(DownloadTls, FollowsFiveRedirectsAndNoMore) {
  EXPECT_TRUE(bring({secure("redirect/5")}));
  EXPECT_TRUE(is_complete());
  std::filesystem::remove(file());
  EXPECT_THAT(refusal({secure("redirect/6")}), HasSubstr("Maximum (5) redirects followed"));
}

TEST_F(DownloadTls, NeverFollowsToPlainHttp) {
  EXPECT_THAT(refusal({secure("redirect_to/" + server_.address("good"))}),
      HasSubstr("Protocol \"http\" not supported or disabled"));
  EXPECT_TRUE(server_.requests().empty());
}

}  // namespace
}  // namespace lockstep
