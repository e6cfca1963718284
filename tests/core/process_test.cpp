#include "lockstep/core/process.h"

#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

TEST(TemporaryFolder, ThatIsNoneIsNamedWithItsVariable) {
  const std::string before = temporary_folder();
  ::setenv("TMPDIR", "/no/such/folder", 1);
  try {
    temporary_folder();
    ADD_FAILURE() << "it is no folder";
  } catch (const std::system_error& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("TMPDIR must name"), 0U) << text;
    EXPECT_NE(text.find("/no/such/folder"), std::string::npos) << text;
  }
  ::setenv("TMPDIR", before.c_str(), 1);
}

TEST(PeakMemory, GrowsWithWhatIsTouchedAndStays) {
  const auto before = peak_memory_bytes();
  ASSERT_TRUE(before.has_value());
  EXPECT_GT(*before, kMebibyte);
  {
    std::vector<char> pages(static_cast<std::size_t>(256 * kMebibyte));
    for (std::size_t i = 0; i < pages.size(); i += 4096) pages[i] = 1;
    volatile char seen = pages.back();
    static_cast<void>(seen);
  }
  const auto after = peak_memory_bytes();
  ASSERT_TRUE(after.has_value());
  EXPECT_GE(*after, *before + 200 * kMebibyte);
  EXPECT_LE(*after, *before + 400 * kMebibyte);
}

TEST(PeakMemory, IsReadFromTheStatus) {
  EXPECT_EQ(
      parse_peak_memory("Name:\tlockstep\nVmPeak:\t  900 kB\nVmHWM:\t     512 kB\nVmRSS:\t 1 kB\n"),
      512 * 1024);
}

TEST(PeakMemory, IsNothingWhereTheStatusHasNone) {
  for (const char* status : {"", "Name:\tkthreadd\nState:\tS\n",
           "Name:\ta\nVmHWM:", "Name:\ta\nVmHWM:\t12", "Name:\ta\nVmHWM:\tmany kB\n",
           "Name:\ta\nVmHWM:\t12 MB\n", "Name:\ta\nVmHWM:\t12 MB\nVmRSS:\t1 kB\n",
           "Name:\ta\nVmHWM:\t99999999999999999999 kB\n"}) {
    EXPECT_EQ(parse_peak_memory(status), std::nullopt) << status;
  }
}

}  // namespace
}  // namespace lockstep
