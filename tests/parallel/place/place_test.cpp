#include "lockstep/parallel/place/place.h"

#include <vector>

#include <gmock/gmock.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Cores, AreDividedInContiguousSetsTheFirstOnesLarger) {
  EXPECT_THAT(
      place::divide_cores({4, 5, 6, 7, 8}, 2),
      ElementsAre(ElementsAre(4, 5, 6), ElementsAre(7, 8)));
}

TEST(Cores, AreSharedInTurnWhereThereAreFewerThanSets) {
  EXPECT_THAT(
      place::divide_cores({4, 5}, 3), ElementsAre(ElementsAre(4), ElementsAre(5), ElementsAre(4)));
}

TEST(Cores, AreWrittenAsRanges) {
  EXPECT_EQ(place::core_ranges({8, 0, 1, 2}), "0-2,8");
  EXPECT_EQ(place::core_ranges({}), "");
}

TEST(CpuPlaces, DivideExactlyTheAllowedCores) {
  const auto places = cpu_places(2);
  ASSERT_EQ(places.size(), 2U);
  std::vector<int> cores;
  for (const Place& place : places) {
    EXPECT_TRUE(place.device.is_cpu());
    cores.insert(cores.end(), place.cores.begin(), place.cores.end());
  }
  auto allowed = place::allowed_cores();
  if (allowed.size() == 1) allowed.push_back(allowed[0]);
  EXPECT_EQ(cores, allowed);
  EXPECT_EQ(oversubscribed(places), place::allowed_cores().size() == 1);
}

TEST(CpuPlaces, SayThatTheyShareCores) {
  const int cores = static_cast<int>(place::allowed_cores().size());
  EXPECT_FALSE(oversubscribed(cpu_places(cores)));
  EXPECT_TRUE(oversubscribed(cpu_places(cores + 1)));
  EXPECT_TRUE(oversubscribed({Place{torch::Device("cuda:1")}, Place{torch::Device("cuda:1")}}));
  EXPECT_FALSE(oversubscribed({Place{torch::Device("cuda:0")}, Place{torch::Device("cuda:1")}}));
}

TEST(CpuPlaces, RefuseAnImpossibleNumber) {
  EXPECT_THAT(
      [] { cpu_places(0); },
      ThrowsMessage<InvalidArgument>(HasSubstr("the number of places must be at least 1: 0")));
}

TEST(DevicePlaces, RefuseTheCpuAndWhatIsNotThere) {
  EXPECT_THAT(
      [] { device_places(torch::kCPU); }, ThrowsMessage<InvalidArgument>(HasSubstr(
                                              "cut its cores into places with cpu_places(count)")));
  EXPECT_THAT(
      [] { device_places(torch::kXPU); },
      ThrowsMessage<InvalidArgument>(HasSubstr("there is no device of type xpu")));
}

TEST(Place, IsComparedAndWritten) {
  const Place cores{torch::kCPU, {0, 1, 2, 3}};
  EXPECT_EQ(cores, (Place{torch::kCPU, {0, 1, 2, 3}}));
  EXPECT_NE(cores, (Place{torch::kCPU, {0, 1}}));
  EXPECT_NE(Place{}, Place{torch::Device("cuda:0")});
  EXPECT_EQ(describe(cores), "cpu cores 0-3");
  EXPECT_EQ(describe(Place{torch::kCPU, {5}}), "cpu core 5");
  EXPECT_EQ(describe(Place{}), "cpu");
  EXPECT_EQ(describe(Place{torch::Device("cuda:1")}), "cuda:1");
}

}  // namespace
}  // namespace lockstep
