// Places, their workers, and the modes that these take over (T9 of the conformance list); values
// that hold tensors.

#include "lockstep/parallel/place/place.h"

#include <cfenv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <pthread.h>
#include <sched.h>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <system_error>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tests/support/busy_core.h"
#include <ATen/Parallel.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/parallel/place/nested.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;

// In contiguous sets, the first ones larger; fewer cores than sets are shared in turn.
TEST(Cores, AreDividedAndWrittenAsRanges) {
  EXPECT_THAT(place::divide_cores({4, 5, 6, 7, 8}, 2),
      ElementsAre(ElementsAre(4, 5, 6), ElementsAre(7, 8)));
  EXPECT_THAT(
      place::divide_cores({4, 5}, 3), ElementsAre(ElementsAre(4), ElementsAre(5), ElementsAre(4)));
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
  auto allowed = available_cpus();
  if (allowed.size() == 1) allowed.push_back(allowed[0]);
  EXPECT_EQ(cores, allowed);
  EXPECT_EQ(oversubscribed(places), available_cpus().size() == 1);
}

TEST(CpuPlaces, SayThatTheyShareCores) {
  const int cores = static_cast<int>(available_cpus().size());
  EXPECT_FALSE(oversubscribed(cpu_places(cores)));
  EXPECT_TRUE(oversubscribed(cpu_places(cores + 1)));
  EXPECT_TRUE(oversubscribed({Place{torch::Device("cuda:1")}, Place{torch::Device("cuda:1")}}));
  EXPECT_FALSE(oversubscribed({Place{torch::Device("cuda:0")}, Place{torch::Device("cuda:1")}}));
}

TEST(Places, AreRefusedWhereThereAreNone) {
  EXPECT_THAT([] { cpu_places(0); },
      ThrowsMessage<InvalidArgument>(HasSubstr("the number of places must be at least 1: 0")));
  EXPECT_THAT([] { device_places(torch::kCPU); },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("cut its cores into places with cpu_places(count)")));
  EXPECT_THAT([] { device_places(torch::kXPU); },
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

Place all_cores() { return cpu_places(1).front(); }

/// Runs a function in a worker and returns what it returns.
template <typename Function>
auto in(PlaceWorker& worker, const Function& function) {
  decltype(function()) result{};
  worker.begin([&] { result = function(); });
  worker.wait();
  return result;
}

/// Lists the threads of this process.
std::set<int> threads() {
  std::set<int> ids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    ids.insert(std::stoi(entry.path().filename()));
  }
  return ids;
}

/// Computes something that LibTorch divides over as many threads as it may use.
int use_all_threads() {
  at::zeros({1 << 22}).exp_();
  return 0;
}

bool may_run_on(int thread, const std::vector<int>& cores) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(::sched_getaffinity(thread, sizeof(mask), &mask), 0);
  for (const int core : cores) CPU_CLR(static_cast<std::size_t>(core), &mask);
  return CPU_COUNT(&mask) == 0;
}

TEST(PlaceWorker, IsPinnedToItsCores) {
  for (const Place& place : cpu_places(2)) {
    PlaceWorker worker(place, "replica");
    EXPECT_EQ(in(worker, available_cpus), place.cores);
  }
}

TEST(PlaceWorker, HasAPinnedTeamOfAsManyThreadsAsCores) {
  const Place place = all_cores();
  PlaceWorker worker(place, "replica");
  EXPECT_EQ(in(worker, at::get_num_threads), static_cast<int>(place.cores.size()));
  const auto before = threads();
  in(worker, use_all_threads);
  const auto after = threads();
  EXPECT_EQ(after.size(), before.size() + place.cores.size() - 1);
  for (const int thread : after) {
    EXPECT_TRUE(before.contains(thread) || may_run_on(thread, place.cores));
  }
}

TEST(PlaceWorker, GoesWhereACoreIsIdleIfItSharesItsOwn) {
  const std::vector<int> all = available_cpus();
  const auto places = cpu_places(static_cast<int>(all.size()) + 1);
  PlaceWorker worker(places.front(), "stage");
  EXPECT_EQ(in(worker, at::get_num_threads), 1);
  EXPECT_EQ(in(worker, available_cpus), all);
}

TEST(PlaceWorker, LeavesTheNumberOfThreadsOfOthersAsItWas) {
  const int before = at::get_num_threads();
  const int other = before + 3;  // what no place of this test has
  at::set_num_threads(other);
  PlaceWorker worker(all_cores(), "replica");
  EXPECT_EQ(at::get_num_threads(), other);
  int in_a_new_thread = 0;
  std::thread([&] { in_a_new_thread = at::get_num_threads(); }).join();
  EXPECT_EQ(in_a_new_thread, other);
  at::set_num_threads(before);
  EXPECT_EQ(in(worker, at::get_num_threads), static_cast<int>(all_cores().cores.size()));
}

TEST(PlaceWorker, IsOneThreadForItsWholeLife) {
  PlaceWorker worker(all_cores(), "replica");
  const auto first = in(worker, std::this_thread::get_id);
  EXPECT_NE(first, std::this_thread::get_id());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(in(worker, std::this_thread::get_id), first);
}

TEST(PlaceWorker, ShowsItsName) {
  PlaceWorker worker(all_cores(), "replica 3 of very many");
  EXPECT_EQ(in(worker,
                [] {
                  char name[16];
                  ::pthread_getname_np(::pthread_self(), name, sizeof(name));
                  return std::string(name);
                }),
      "replica 3 of ve");
}

TEST(PlaceWorker, ThrowsFromWaitWhatATaskThrewAndGoesOn) {
  PlaceWorker worker(all_cores(), "replica");
  worker.begin([] { throw std::out_of_range("no such layer"); });
  EXPECT_THAT([&] { worker.wait(); }, ThrowsMessage<std::out_of_range>("no such layer"));
  EXPECT_EQ(in(worker, [] { return 7; }), 7);
}

TEST(PlaceWorker, RefusesATaskBeforeTheLastIsWaitedFor) {
  PlaceWorker worker(all_cores(), "replica");
  worker.begin([] {});
  EXPECT_THAT([&] { worker.begin([] {}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("has not been waited for")));
  worker.wait();
  worker.wait();  // nothing is under way
}

TEST(PlaceWorker, LetsGoOfATaskBeforeItsEndIsAnnounced) {
  PlaceWorker worker(all_cores(), "replica");
  const auto captured = std::make_shared<int>(1);
  worker.begin([copy = captured] { (void)copy; });
  worker.wait();
  EXPECT_EQ(captured.use_count(), 1);
}

TEST(PlaceWorker, EndsTheTaskThatIsUnderWayWhenItDies) {
  bool done = false;
  {
    PlaceWorker worker(all_cores(), "replica");
    worker.begin([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done = true;
      throw std::runtime_error("nobody waits for this");
    });
  }
  EXPECT_TRUE(done);
}

// Note [Waits]: who gives the tasks may share its core with the worker, or with other programs.
TEST(PlaceWorker, IsWaitedForInSleep) {
  const testing::BusyThread busy;
  PlaceWorker worker(all_cores(), "replica");
  testing::Switches switches;
  std::thread([&] {
    testing::pin_to_first_core();
    worker.begin([] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });
    switches = testing::switches_of([&] { worker.wait(); });
  }).join();
  EXPECT_LT(switches.voluntary, 50) << "it woke up in between";
  EXPECT_LT(switches.involuntary, 20) << "it spun";
}

TEST(PlaceWorker, WaitsForATaskInSleep) {
  const testing::BusyThread busy;
  PlaceWorker worker(all_cores(), "replica");
  in(worker, [] { return testing::pin_to_first_core(), 0; });
  rusage before{}, after{};
  const auto look = [](rusage& use) { ::getrusage(RUSAGE_THREAD, &use); };
  in(worker, [&] { return look(before), 0; });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  in(worker, [&] { return look(after), 0; });
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 50) << "it woke up in between";
  EXPECT_LT(after.ru_nivcsw - before.ru_nivcsw, 20) << "it spun";
}

TEST(PlaceWorker, RefusesCoresThatItMayNotUse) {
  EXPECT_THAT(
      [] {
        PlaceWorker(Place{torch::kCPU, {CPU_SETSIZE - 1}}, "replica");
      },
      ThrowsMessage<std::system_error>(HasSubstr("PlaceWorker: pin to cpu core 1023")));
  EXPECT_THAT(
      [] {
        PlaceWorker(Place{torch::kCPU, {-1}}, "replica");
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("there is no core -1")));
}

void in_a_new_thread(const std::function<void()>& body) { std::thread(body).join(); }

/// Runs the body in a new thread that has taken over the modes of this one.
void with_modes_of_this_thread(const std::function<void()>& body) {
  const ThreadModes modes;
  in_a_new_thread([&] {
    const ThreadModes::Scope scope(modes);
    body();
  });
}

at::ScalarType type_of_product() {
  return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type();
}

// Says whether a mode is other than usual: in this thread it is.
void expect_carried(const std::function<bool()>& is_unusual) {
  in_a_new_thread([&] { EXPECT_FALSE(is_unusual()); });
  with_modes_of_this_thread([&] { EXPECT_TRUE(is_unusual()); });
}

TEST(ThreadModes, CarryGradientsInferenceAutocastAndHooksT9) {
  {
    const torch::NoGradGuard no_grad;
    expect_carried([] { return !torch::GradMode::is_enabled(); });
  }
  {
    const c10::InferenceMode inference;
    expect_carried([] { return at::ones({1}).is_inference(); });
  }
  {
    const nn::Autocast autocast(at::kCPU, at::kHalf);
    expect_carried([] { return type_of_product() == at::kHalf; });
    with_modes_of_this_thread([] { EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU)); });
  }
  at::autocast::set_autocast_cache_enabled(false);
  expect_carried([] { return !at::autocast::is_autocast_cache_enabled(); });
  at::autocast::set_autocast_cache_enabled(true);
  at::SavedTensorDefaultHooks::disable("not in this test");
  expect_carried([] { return !at::SavedTensorDefaultHooks::is_enabled(); });
  at::SavedTensorDefaultHooks::enable();
}

TEST(ThreadModes, CarryThatAutocastIsOff) {
  const ThreadModes modes;
  const nn::Autocast autocast(at::kCPU, at::kBFloat16);
  {
    const ThreadModes::Scope scope(modes);
    EXPECT_EQ(type_of_product(), at::kFloat);
  }
  EXPECT_EQ(type_of_product(), at::kBFloat16);
}

TEST(ThreadModes, CarryTheModeOfArithmetic) {
  const ThreadModes nearest;
  std::fesetround(FE_UPWARD);
  with_modes_of_this_thread([] { EXPECT_EQ(std::fegetround(), FE_UPWARD); });
  {
    const ThreadModes::Scope scope(nearest);
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
}

TEST(ThreadModes, GiveTheThreadItsOwnBack) {
  const ThreadModes modes;
  in_a_new_thread([&] {
    const torch::NoGradGuard no_grad;
    at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
    {
      const ThreadModes::Scope scope(modes);
      EXPECT_TRUE(torch::GradMode::is_enabled());
      EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
    }
    EXPECT_FALSE(torch::GradMode::is_enabled());
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
  });
}

using Everything = std::tuple<Tensor, std::pair<int, Tensor>, std::vector<std::array<Tensor, 2>>,
    std::map<std::string, Tensor>, std::unordered_map<std::string, std::optional<Tensor>>,
    std::string, torch::OrderedDict<std::string, Tensor>>;

Tensor number(double value) { return at::full({}, value); }

Everything everything() {
  Everything value{number(0), {17, number(1)}, {{number(2), number(3)}, {number(4), number(5)}},
      {{"b", number(7)}, {"a", number(6)}},
      {{"z", number(9)}, {"y", std::nullopt}, {"x", number(8)}}, "plain",
      torch::OrderedDict<std::string, Tensor>()};
  std::get<6>(value).insert("second", number(10));
  std::get<6>(value).insert("first", number(11));
  return value;
}

std::vector<double> numbers(const std::vector<Tensor>& tensors) {
  std::vector<double> values;
  for (const Tensor& tensor : tensors) values.push_back(tensor.item<double>());
  return values;
}

static_assert(Nested<Tensor> && Nested<const std::vector<Tensor>&> && Nested<Everything>);
static_assert(Nested<std::map<std::string, std::pair<int, Tensor>>>);
static_assert(!Nested<int> && !Nested<std::string> && !Nested<std::vector<int>>);
static_assert(!Nested<std::tuple<int, std::string>> && !Nested<std::optional<double>>);

TEST(Nested, TensorsComeInOneOrder) {
  EXPECT_THAT(numbers(flatten(everything())), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(flatten(3), ::testing::IsEmpty());
  EXPECT_THAT(flatten(std::vector<int>{1, 2}), ::testing::IsEmpty());
}

TEST(Nested, UnflattenIsTheInverseAndKeepsWhatIsPlain) {
  auto tensors = flatten(everything());
  for (Tensor& tensor : tensors) tensor = tensor * 2;
  const auto doubled = unflatten(everything(), tensors);
  EXPECT_THAT(numbers(flatten(doubled)), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22));
  const auto back = unflatten(doubled, flatten(everything()));
  EXPECT_EQ(numbers(flatten(back)), numbers(flatten(everything())));
  EXPECT_EQ(std::get<1>(back).first, 17);
  EXPECT_EQ(std::get<5>(back), "plain");
  EXPECT_EQ(std::get<6>(back).keys(), (std::vector<std::string>{"second", "first"}));
}

TEST(Nested, UnflattenRefusesAnotherNumberOfTensors) {
  const std::vector<Tensor> structure(3);
  EXPECT_THAT([&] { unflatten(structure, {number(1)}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("the structure has 3 tensors, but these are 1")));
}

TEST(Nested, AMapHasOneOrderHoweverItWasFilled) {
  std::unordered_map<std::string, Tensor> a, b;
  for (int i = 0; i < 20; ++i) a.emplace(std::to_string(i), number(i));
  for (int i = 19; i >= 0; --i) b.emplace(std::to_string(i), number(i));
  EXPECT_EQ(numbers(flatten(a)), numbers(flatten(b)));
  EXPECT_TRUE(same_structure(a, b));
}

TEST(Nested, StructuresDifferInSizesKeysDefinednessAndPlainValues) {
  EXPECT_TRUE(same_structure(everything(), everything()));
  auto other = everything();
  std::get<1>(other).first = 18;
  EXPECT_FALSE(same_structure(everything(), other));
  other = everything();
  std::get<4>(other)["y"] = number(1);
  EXPECT_FALSE(same_structure(everything(), other));
  other = everything();
  std::get<6>(other).insert("third", number(1));
  EXPECT_FALSE(same_structure(everything(), other));
  EXPECT_FALSE(same_structure(std::vector<Tensor>(2), std::vector<Tensor>(3)));
  EXPECT_FALSE(same_structure(Tensor(), number(1)));
  EXPECT_FALSE(same_structure(std::map<std::string, Tensor>{{"a", number(1)}}, {{"b", number(1)}}));
}

}  // namespace
}  // namespace lockstep
