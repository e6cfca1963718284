#include "bench/experiment/sample_log.h"

#include <fstream>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/experiment/shell_study.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names;
using testing::text_of;

Sample sample_of(const std::string& cell, int round, double value = 1) {
  return {.study = "s", .cell = cell, .round = round, .values = {{"x", value}}};
}

std::string text_of_samples(int count) {
  std::string text;
  for (int round = 1; round <= count; ++round) text += to_json(sample_of("c", round)) + "\n";
  return text;
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(SampleLog, KeepsWhatIsAppended) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "samples.jsonl";
  {
    SampleLog log(path);
    EXPECT_THAT(log.samples(), IsEmpty());
    log.append(sample_of("a", 1));
    log.append(sample_of("b", 1));
    EXPECT_EQ(read_samples(path).samples, log.samples());
  }
  SampleLog log(path);
  EXPECT_EQ(log.torn(), "");
  log.append(sample_of("a", 2));
  EXPECT_THAT(names(log.samples()), ElementsAre("a-1", "b-1", "a-2"));
  EXPECT_THAT(names(read_samples(path).samples), ElementsAre("a-1", "b-1", "a-2"));
}

TEST(SampleLog, HoldsWhatAReaderFinds) {
  const TemporaryFolder folder;
  SampleLog log(folder.path() / "samples.jsonl");
  Sample sample = sample_of("a", 1);
  sample.failure = "\xff";
  log.append(sample);
  EXPECT_EQ(log.samples().front().failure, "\xef\xbf\xbd");
}

// Wherever a kill tears the file, the whole lines are there, the rest is cut off, and it goes on.
TEST(SampleLog, CutsATornLineOffWhereverItIsTorn) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "samples.jsonl";
  const std::string text = text_of_samples(3);
  const std::size_t line = text.size() / 3;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    write(path, text.substr(0, size));
    SampleLog log(path);
    const bool lacks_newline_only = size % line == line - 1;
    const std::size_t whole = size / line + (lacks_newline_only ? 1 : 0);
    ASSERT_EQ(log.samples().size(), whole) << size;
    EXPECT_EQ(log.torn().empty(), size % line == 0 || lacks_newline_only) << size;
    log.append(sample_of("d", 1));
    ASSERT_EQ(text_of(path), text.substr(0, whole * line) + to_json(sample_of("d", 1)) + "\n");
  }
}

TEST(SampleLog, NamesTheLineThatWasTorn) {
  const SampleFile file = parse_samples(text_of_samples(2) + "{\"v\":1,\n", "s.jsonl");
  EXPECT_EQ(file.torn, "s.jsonl: line 3: incomplete because its writer died; skipped");
  EXPECT_EQ(file.samples.size(), 2U);
  EXPECT_EQ(file.whole, text_of_samples(2).size());
}

TEST(SampleLog, RefusesDamageThatNoKillMakes) {
  const auto complaint = [](const std::string& text) {
    try {
      parse_samples(text, "s.jsonl");
      return std::string();
    } catch (const DataError& error) {
      return std::string(error.what());
    }
  };
  const std::string good = text_of_samples(1);
  EXPECT_THAT(complaint("{\n" + good), HasSubstr("s.jsonl: line 1: offset"));
  EXPECT_THAT(complaint(good + "\n" + good), HasSubstr("s.jsonl: line 2: "));
  EXPECT_THAT(complaint(good + "{\"v\":2}"), HasSubstr("s.jsonl: line 2: ")) << "whole, but wrong";
  EXPECT_THAT(complaint(std::string(2 << 20, ' ')),
      HasSubstr("s.jsonl: line 1: 2097152 bytes are too many"));
  const TemporaryFolder folder;
  EXPECT_THROW(read_samples(folder.path() / "none.jsonl"), DataError);
  EXPECT_THROW(SampleLog(folder.path()), std::system_error) << "a folder";
}

TEST(SampleLog, HasOneWriter) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "samples.jsonl";
  const SampleLog log(path);
  EXPECT_THROW(SampleLog{path}, InvalidArgument);
  EXPECT_NO_THROW(read_samples(path)) << "a reader may look";
}

// In a child process, as the limit on files cannot be raised again.
TEST(SampleLog, AFullDiskLeavesWholeLines) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "samples.jsonl";
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    SampleLog log(path);
    log.append(sample_of("a", 1));
    const rlimit limit{text_of(path).size() + 20, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      log.append(sample_of("a", 2));
    } catch (const std::system_error&) {
      ::_exit(log.samples().size() == 1 ? 7 : 8);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(text_of(path), to_json(sample_of("a", 1)) + "\n");
}

TEST(Latest, KeepsTheLastOfARound) {
  Sample other = sample_of("a", 1, 9);
  other.study = "t";
  const auto kept = latest({sample_of("a", 1, 1), other, sample_of("b", 1), sample_of("a", 1, 2)});
  EXPECT_THAT(names(kept), ElementsAre("a-1", "b-1", "a-1"));
  EXPECT_EQ(kept[0], other);
  EXPECT_EQ(kept[2].values.at("x"), 2);
}

}  // namespace
}  // namespace lockstep::bench
