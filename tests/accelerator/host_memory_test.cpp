// The memory of tensors on the CPU that stays for the next ones.

#include "lockstep/device/host_memory.h"

#include <array>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>

namespace lockstep {
namespace {

#if defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_SANITIZED
#endif
#endif

class HostMemory : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef LOCKSTEP_SANITIZED
    GTEST_SKIP() << "a sanitizer sees more with LibTorch's allocator";
#endif
    keep_host_memory();
  }
};

constexpr std::int64_t kFloats = 4 << 20;

void* place_of(std::int64_t floats) { return at::empty({floats}).data_ptr(); }

TEST_F(HostMemory, TheNextTensorHasThePlaceOfThePrevious) {
  EXPECT_EQ(place_of(kFloats), place_of(kFloats));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(place_of(kFloats + 1)) % 64, 0U);
}

long page_faults() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST_F(HostMemory, PagesStay) {
  at::full({kFloats}, 1);
  const long before = page_faults();
  for (int step = 0; step < 50; ++step) at::full({kFloats}, step);
  EXPECT_LT(page_faults() - before, 50) << "of 4096 a tensor, or 8 huge ones";
}

TEST_F(HostMemory, ReleasedPagesAreZeroAndUsable) {
  void* const place = at::full({kFloats}, 1).data_ptr();
  release_host_memory();
  const at::Tensor again = at::empty({kFloats});
  ASSERT_EQ(again.data_ptr(), place);
  EXPECT_EQ(again.sum().item<float>(), 0);
}

std::int64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  pages >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// A small tensor in the gap of a large one: the next large one has no room there.
TEST_F(HostMemory, TheNextLargeTensorCostsNoMoreWhereItsGapIsCutInto) {
  constexpr std::int64_t kLarge = 64 << 20;  // floats
  release_host_memory();
  at::Tensor large = at::ones({kLarge});
  const at::Tensor behind = at::ones({kFloats});
  const std::int64_t before = resident_bytes();
  large.reset();
  const at::Tensor cuts = at::ones({kFloats});
  large = at::ones({kLarge});
  ASSERT_GT(large.data_ptr(), behind.data_ptr());
  EXPECT_LT(resident_bytes() - before, 2 * kFloats * 4);
}

TEST_F(HostMemory, RawMemoryOfAnySizeGoesBackWhereItCameFrom) {
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  for (const std::size_t bytes : {1UL, 1UL << 10, 1UL << 16, 1UL << 24}) {
    void* const data = allocator->raw_allocate(bytes);
    std::memset(data, 1, bytes);
    allocator->raw_deallocate(data);
  }
}

TEST_F(HostMemory, MoreThanTheMachineHasIsRefusedInLibTorchsWords) {
  EXPECT_THROW(at::empty({std::int64_t{1} << 50}), c10::Error);
}

TEST_F(HostMemory, ThreadsHoldTensorsOfTheirOwn) {
  std::vector<std::thread> threads;
  std::array<int, 4> wrong{};
  for (std::size_t thread = 0; thread < wrong.size(); ++thread) {
    threads.emplace_back([mark = static_cast<int>(thread), &count = wrong[thread]] {
      std::vector<at::Tensor> held(8);
      for (int turn = 0; turn < 400; ++turn) {
        at::Tensor& one = held[static_cast<std::size_t>(turn * 5 % 8)];
        if (one.defined() && !one.eq(mark).all().item<bool>()) ++count;
        one = at::full({16'384 + turn * 100}, mark);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace lockstep
