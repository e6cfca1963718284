#include "lockstep/formats/fetch/download.h"

#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <system_error>

#include "tests/formats/fetch/download_fixture.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using DownloadTest = testing::DownloadTest;

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

TEST_F(DownloadTest, GoesOnWhereTheConnectionBroke) {
  EXPECT_TRUE(bring({"cut/100000"}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(
      server_.requests(), ElementsAre("/cut/100000 - -", "/cut/100000 bytes=100000- \"first\"",
                              "/cut/100000 bytes=200000- \"first\""));
  EXPECT_THAT(notices_, SizeIs(2));
}

TEST_F(DownloadTest, GoesOnWhereTheRunBeforeEnded) {
  leave_part(content_.substr(0, 123'456));
  EXPECT_TRUE(bring({"good"}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(server_.requests(), ElementsAre("/good bytes=123456- -"));
}

TEST_F(DownloadTest, AsksForNothingIfThePartIsWhole) {
  leave_part(content_);
  EXPECT_TRUE(bring({"good"}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(DownloadTest, BeginsAnewIfThePartIsToBlame) {
  leave_part(std::string(1000, 'x'));
  EXPECT_TRUE(bring({"good"}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(server_.requests(), ElementsAre("/good bytes=1000- -", "/good - -"));
  ASSERT_THAT(notices_, SizeIs(1));
  EXPECT_THAT(notices_[0], HasSubstr("trying again from its start"));
}

TEST_F(DownloadTest, BeginsAnewIfThePartIsTooLong) {
  for (const std::size_t size : {content_.size(), content_.size() + 1}) {
    fs::remove_all(target_);
    leave_part(std::string(size, 'x'));
    EXPECT_TRUE(bring({"good"}));
    EXPECT_TRUE(is_complete());
    EXPECT_THAT(server_.requests(), ElementsAre("/good - -"));
  }
}

TEST_F(DownloadTest, BeginsAnewIfTheServerKnowsNoParts) {
  EXPECT_TRUE(bring({"cut_without_ranges/2"}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(server_.requests(), SizeIs(3));
}

TEST_F(DownloadTest, BeginsAnewIfTheFileChanged) {
  EXPECT_TRUE(bring({"changed"}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(server_.requests(), ElementsAre("/changed - -", "/changed bytes=150000- \"first\""));
}

TEST_F(DownloadTest, DoesNotTrustAWeakTag) {
  EXPECT_TRUE(bring({"weak"}));
  EXPECT_THAT(server_.requests(), ElementsAre("/weak - -", "/weak bytes=150000- -"));
}

TEST_F(DownloadTest, BeginsAnewIfTheServerHasNoSuchRange) {
  leave_part(content_.substr(0, 10));
  EXPECT_TRUE(bring({"no_such_range"}));
  EXPECT_TRUE(is_complete());
}

TEST_F(DownloadTest, RefusesAPartThatItDidNotAskFor) {
  EXPECT_THAT(refusal({"other_part"}), HasSubstr("sent another part than it was asked for"));
  EXPECT_EQ(fs::file_size(part()), 100U);
}

TEST_F(DownloadTest, TriesAgainWhileTheServerIsBusy) {
  EXPECT_TRUE(bring({"busy/2"}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(server_.requests(), SizeIs(3));
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

TEST_F(DownloadTest, KeepsNothingOfAnAddressWhoseContentIsWrong) {
  EXPECT_TRUE(bring({"longer", "good"}));
  EXPECT_TRUE(is_complete());
  EXPECT_THAT(server_.requests(), ElementsAre("/longer - -", "/good - -"));
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
  options_.transfer.slow_time = std::chrono::seconds(1);
  EXPECT_THAT(refusal({"silent_after_length/299999"}), HasSubstr("has 299999 bytes where"));
  EXPECT_THAT(server_.requests(), ElementsAre("/silent_after_length/299999 - -"));
  leave_part(content_.substr(0, 100'000));
  EXPECT_THAT(refusal({"silent_after_range/300001"}), HasSubstr("has 300001 bytes where"));
  EXPECT_THAT(server_.requests(), ElementsAre("/silent_after_range/300001 bytes=100000- -"));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(DownloadTest, L7TriesOnceMoreWhereNothingComes) {
  options_.transfer.slow_time = std::chrono::seconds(1);
  EXPECT_THAT(refusal({"silent_after_length/300000"}), HasSubstr("Operation too slow"));
  EXPECT_THAT(server_.requests(), SizeIs(2));
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("transferred the last 1 seconds")));
  EXPECT_LE(TransferOptions().slow_time, std::chrono::seconds(15));
}

TEST_F(DownloadTest, EndsABodyWithoutEnd) {
  EXPECT_THROW(bring({"endless"}), DataError);
  EXPECT_TRUE(fs::is_empty(target_));
}

TEST_F(DownloadTest, EndsWhatIsTooSlow) {
  options_.attempts = 1;
  options_.transfer.slow_time = std::chrono::seconds(1);
  EXPECT_THAT(refusal({"slow"}), HasSubstr("Operation too slow"));
}

TEST_F(DownloadTest, TakesBytesAsTheyAre) {
  EXPECT_TRUE(bring({"compressed"}));
  EXPECT_TRUE(is_complete());
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
  options_.transfer.plain_on_loopback = false;
  EXPECT_THROW(bring({"good"}), InvalidArgument);
  EXPECT_THAT(refusal({"good"}), HasSubstr("only https is taken: http://127.0.0.1"));
  options_.transfer.plain_on_loopback = true;
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
  Download wrong = good;
  wrong.sha256.pop_back();
  EXPECT_THROW(download(wrong, target_, options_), InvalidArgument);
  wrong = good;
  wrong.bytes = 0;
  EXPECT_THROW(download(wrong, target_, options_), InvalidArgument);
  wrong = good;
  wrong.addresses.clear();
  EXPECT_THROW(download(wrong, target_, options_), InvalidArgument);
  wrong = good;
  wrong.name = "../set.bin";
  EXPECT_THROW(download(wrong, target_, options_), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
