#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "tests/formats/mutated.h"

namespace {
thread_local std::size_t largest = 0;
}  // namespace

std::size_t lockstep::testing::take_largest_allocation() { return std::exchange(largest, 0); }

void* operator new(std::size_t size) {
  largest = std::max(largest, size);
  if (void* memory = std::malloc(std::max<std::size_t>(size, 1))) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
