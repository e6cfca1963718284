#include "lockstep/net/authentication.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <system_error>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::net {
namespace {

using ::testing::HasSubstr;

const Key kRun = key_of_run("a secret of some length", "job");

/// One handshake, message by message.
struct Talk {
  std::string challenge = challenge_of(random_key());
  std::string answer;

  explicit Talk(const Key& key, const Hello& hello = {.job = "job"})
      : answer(answer_to(challenge, hello, random_key(), key)) {}

  bool is_proven(const Key& key) const { return knows_key(challenge, answer, key); }
};

TEST(Hmac, IsThatOfTheStandard) {
  // RFC 4231, test case 2.
  EXPECT_EQ(hex_of(hmac_sha256("Jefe", "what do ya want for nothing?")),
      "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Hmac, KeysAreReadAsTheyAreWritten) {
  const Key key = random_key();
  EXPECT_EQ(key_of_hex(hex_of(key)), key);
  EXPECT_THROW(key_of_hex("00"), InvalidArgument);
  EXPECT_THROW(key_of_hex(std::string(64, 'g')), InvalidArgument);
  EXPECT_NE(random_key(), key);
}

TEST(Handshake, OfTwoWhoKnowTheKeySucceeds) {
  const Talk talk(kRun, {.job = "job", .role = Role::kRank, .generation = 7});
  EXPECT_TRUE(talk.is_proven(kRun));
  const Hello hello = hello_of(talk.answer);
  EXPECT_EQ(hello.job, "job");
  EXPECT_EQ(hello.role, Role::kRank);
  EXPECT_EQ(hello.generation, 7);
  check_welcome(welcome_of(talk.challenge, talk.answer, kRun), talk.challenge, talk.answer, kRun);
}

TEST(Handshake, AnotherSecretOrRunIsNoProof) {
  EXPECT_FALSE(Talk(key_of_run("another secret", "job")).is_proven(kRun));
  EXPECT_FALSE(Talk(key_of_run("a secret of some length", "other")).is_proven(kRun));
  EXPECT_FALSE(Talk(key_of_generation(kRun, 1, {})).is_proven(key_of_generation(kRun, 2, {})));
}

TEST(Handshake, ARecordedAnswerDoesNotFitAnotherChallenge) {
  const Talk talk(kRun);
  EXPECT_FALSE(knows_key(challenge_of(random_key()), talk.answer, kRun));
}

TEST(Handshake, AChangedAnswerIsNoProof) {
  const Talk talk(kRun);
  for (std::size_t i = 0; i < talk.answer.size(); ++i) {
    std::string changed = talk.answer;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(knows_key(talk.challenge, changed, kRun)) << i;
  }
}

TEST(Handshake, TheServerProvesItselfToo) {
  const Talk talk(kRun);
  const auto refusal = [&](const std::string& welcome) {
    return testing::message_of<InvalidArgument>(
        [&] { check_welcome(welcome, talk.challenge, talk.answer, kRun); });
  };
  const Key other = key_of_run("another secret", "job");
  EXPECT_THAT(refusal(welcome_of(talk.challenge, talk.answer, other)),
      HasSubstr("does not know the secret"));
  EXPECT_EQ(refusal(refusal_of("no")), "no");
  EXPECT_THROW(
      check_welcome(refusal_of("late", true), talk.challenge, talk.answer, kRun), CommError);
  EXPECT_THROW(check_welcome("", talk.challenge, talk.answer, kRun), DataError);
}

TEST(Handshake, OtherProtocolsAreNamed) {
  EXPECT_THROW(answer_to("HTTP/1.1 400 Bad Request\r\n\r\n and so on, for a while", {}, {}, kRun),
      DataError);
  std::string older = challenge_of({});
  older[16] = 9;
  EXPECT_THAT(testing::message_of<DataError>([&] { answer_to(older, {}, {}, kRun); }),
      HasSubstr("speaks version 9 of the protocol, we speak 1"));
  EXPECT_THROW(hello_of(""), DataError);
  EXPECT_THROW(hello_of(std::string(200, 'x')), DataError);
}

TEST(Sealing, OpensInOrder) {
  Sealer sealer(kRun);
  Opener opener(kRun);
  for (const char* message : {"one", "", "three"})
    EXPECT_EQ(opener.open(sealer.seal(message)), message);
}

TEST(Sealing, RefusesWhatIsRepeatedLeftOutChangedOrForged) {
  Sealer sealer(kRun);
  const std::string first = sealer.seal("message"), second = sealer.seal("message");
  EXPECT_THROW(Opener(kRun).open(second), DataError) << "the first is left out";
  Opener opener(kRun);
  opener.open(first);
  EXPECT_THROW(opener.open(first), DataError) << "it comes again";
  for (std::size_t i = 0; i < first.size(); ++i) {
    std::string changed = first;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_THROW(Opener(kRun).open(changed), DataError) << i;
  }
  EXPECT_THROW(Opener(random_key()).open(first), DataError);
  EXPECT_THROW(Opener(kRun).open("short"), DataError);
}

TEST(Sealing, TheTwoDirectionsHaveOtherKeys) {
  const Talk talk(kRun);
  const SessionKeys keys = session_keys(talk.challenge, talk.answer, kRun);
  EXPECT_THROW(Opener(keys.to_client).open(Sealer(keys.to_server).seal("echo")), DataError);
}

namespace fs = std::filesystem;

std::string secret_file(const testing::TemporaryFolder& folder, const std::string& text,
    fs::perms mode = fs::perms::owner_read) {
  const std::string path = folder.file("secret");
  fs::remove(path);
  std::ofstream(path) << text;
  fs::permissions(path, mode);
  return path;
}

std::string refusal_of_file(const std::string& path) {
  return testing::message_of<InvalidArgument>([&] { shared_secret(path); });
}

TEST(Secret, IsWhatTheFileHoldsWithoutTheEndOfItsLine) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(shared_secret(secret_file(folder, "0123456789abcdef\n")), "0123456789abcdef");
}

TEST(Secret, InAFileThatOthersMayReadIsRefused) {
  const testing::TemporaryFolder folder;
  const auto mode = fs::perms::owner_read;
  EXPECT_THAT(
      refusal_of_file(secret_file(folder, "0123456789abcdef", mode | fs::perms::group_read)),
      HasSubstr("may be read or written by other users; chmod 600"));
  EXPECT_THAT(
      refusal_of_file(secret_file(folder, "0123456789abcdef", mode | fs::perms::others_write)),
      HasSubstr("chmod 600"));
}

TEST(Secret, ThatIsShortOrNoFileIsRefused) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT(refusal_of_file(secret_file(folder, "short\n")), HasSubstr("too few"));
  EXPECT_THAT(refusal_of_file(secret_file(folder, std::string(5000, 'x'))), HasSubstr("more than"));
  EXPECT_THAT(refusal_of_file(folder.str()), HasSubstr("is not a file"));
  EXPECT_THROW(shared_secret(folder.file("none")), std::system_error);
}

TEST(Secret, MayComeFromTheEnvironment) {
  ::setenv(kSecretVariable, "of the environment", 1);
  EXPECT_EQ(shared_secret(""), "of the environment");
  ::setenv(kSecretVariable, "short", 1);
  EXPECT_THAT(refusal_of_file(""), HasSubstr("LOCKSTEP_SECRET has 5 bytes"));
  ::unsetenv(kSecretVariable);
  EXPECT_EQ(shared_secret(""), "");
}

}  // namespace
}  // namespace lockstep::net
