#include "lockstep/nn/conv/faster_kinds.h"

#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <string>

#include "tests/support/temporary_folder.h"

namespace lockstep::nn::conv {
namespace {

using lockstep::testing::TemporaryFolder;
using simd::InstructionSet;

TEST(FasterKinds, AreKnownOfTheProcessorsThatWeMeasured) {
  const FasterKinds all{true, true, true};
  EXPECT_EQ(known_kinds(InstructionSet::kAvx2, "fma sse4a avx2"), all);
  EXPECT_EQ(known_kinds(InstructionSet::kPlain, "fma sse4a avx2"), FasterKinds{});
  EXPECT_EQ(known_kinds(InstructionSet::kAvx2, "fma avx2"), std::nullopt);
  EXPECT_EQ(known_kinds(InstructionSet::kAvx512, "sse4a avx2 avx512f"), std::nullopt);
  EXPECT_EQ(known_kinds(InstructionSet::kAvx2, "sse4a avx2 avx512f"), std::nullopt);
}

TEST(FasterKinds, AreFasterByATwentieth) {
  const FasterKinds found =
      faster_by({.products = 0.94, .window_products = 0.96, .depthwise_outputs = 2});
  EXPECT_EQ(found, (FasterKinds{.products = true}));
  EXPECT_EQ(faster_by({.products = 1, .window_products = 0.5, .depthwise_outputs = 0.1}),
      (FasterKinds{.window_products = true, .depthwise_outputs = true}));
}

TEST(FasterKinds, AreMeasuredByLayersOfEachKind) {
  const KindTimes times = measured_times();
  for (const double time : {times.products, times.window_products, times.depthwise_outputs}) {
    EXPECT_TRUE(std::isfinite(time));
    EXPECT_GT(time, 0.01);
    EXPECT_LT(time, 100);
  }
}

/// Counts how often it is measured; each time is another one.
class Measuring {
 public:
  KindTimes operator()(const std::filesystem::path& folder, const std::string& processor) {
    return remembered_times(folder, processor, [this] {
      ++count_;
      return KindTimes{.products = 0.5 + count_, .window_products = 0.25, .depthwise_outputs = 2};
    });
  }
  int count() const { return count_; }

 private:
  int count_ = 0;
};

TEST(FasterKinds, AreMeasuredOnceForAProcessor) {
  const TemporaryFolder home;
  const auto folder = home.path() / "new" / "lockstep";
  Measuring measured;
  EXPECT_EQ(measured(folder, "one").products, 1.5);
  const KindTimes again = measured(folder, "one");
  EXPECT_EQ(again.products, 1.5);
  EXPECT_EQ(again.window_products, 0.25);
  EXPECT_EQ(again.depthwise_outputs, 2);
  EXPECT_EQ(measured(folder, "other").products, 2.5);
  EXPECT_EQ(measured(folder, "one").products, 1.5);
  EXPECT_EQ(measured.count(), 2);
}

TEST(FasterKinds, AreMeasuredAgainWhereTheFileSaysNothingOfIt) {
  const TemporaryFolder home;
  Measuring measured;
  measured(home.path(), "one");
  ASSERT_EQ(home.names().size(), 1U);
  const std::string file = home.file(home.names().front());
  constexpr const char* kOfAnother =
      R"({"processor":"two","products":1,"window_products":1,"depthwise_outputs":1})";
  for (const char* text : {"", "{", "[]", R"({"processor":"one"})", kOfAnother}) {
    std::ofstream(file) << text;
    const int before = measured.count();
    const double time = measured(home.path(), "one").products;
    EXPECT_EQ(measured.count(), before + 1) << text;
    EXPECT_EQ(measured(home.path(), "one").products, time) << text;
  }
  EXPECT_EQ(home.names().size(), 1U);
}

// As two ranks do that start on a new machine.
TEST(FasterKinds, AreTheFirstOnesWhereTwoMeasureAtTheSameTime) {
  const TemporaryFolder home;
  Measuring first;
  const KindTimes second = remembered_times(home.path(), "one", [&] {
    first(home.path(), "one");
    return KindTimes{.products = 9, .window_products = 9, .depthwise_outputs = 9};
  });
  EXPECT_EQ(second.products, 1.5);
  EXPECT_EQ(home.names().size(), 1U);
}

TEST(FasterKinds, AreMeasuredEachTimeWhereNothingCanBeKept) {
  const TemporaryFolder home;
  std::ofstream(home.file("taken")) << "a file";
  Measuring measured;
  for (const auto& folder : {home.path() / "taken", std::filesystem::path()}) {
    const int before = measured.count();
    measured(folder, "one");
    measured(folder, "one");
    EXPECT_EQ(measured.count(), before + 2) << folder;
  }
}

}  // namespace
}  // namespace lockstep::nn::conv
