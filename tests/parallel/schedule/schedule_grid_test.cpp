// Every schedule over many numbers of ranks, stages and micro-batches: valid (H1, H2), and as long
// idle as its closed form says.

#include <array>

#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/schedule.h"
#include "lockstep/parallel/schedule/timetable.h"

namespace lockstep {
namespace {

using enum ScheduleKind;

constexpr std::array kAll{kSequential, kGPipe, k1F1B, kInterleaved, kZeroBubble};

template <typename Body>
void for_each_shape(Body body) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int per_rank = 1; per_rank <= 4; ++per_rank) {
      for (int micro_batches = 1; micro_batches <= 15; ++micro_batches) {
        for (const ScheduleKind kind : kAll) {
          if (per_rank > 1 && kind != kInterleaved && kind != kZeroBubble) continue;
          SCOPED_TRACE(concat(
              name_of(kind), ", ", ranks, " ranks, ", per_rank,
              " stages each, m = ", micro_batches));
          body(kind, ranks, per_rank * ranks, micro_batches);
        }
      }
    }
  }
}

TEST(ScheduleGrid, H1EveryScheduleIsValidWithAndWithoutTransfers) {
  for_each_shape([](ScheduleKind kind, int ranks, int stages, int micro_batches) {
    const Schedule schedule = make_schedule(kind, ranks, stages, micro_batches);
    EXPECT_NO_THROW(check_schedule(schedule));
    EXPECT_NO_THROW(check_schedule(with_transfers(schedule)));
    EXPECT_NO_THROW(check_schedule(with_merged_backward(schedule)));
  });
}

struct Grid {
  int stages_per_rank, micro_batches, ranks;
};

TEST(ScheduleGrid, H2InterleavedAndZeroBubbleAreValidOnPyTorchsGrid) {
  constexpr std::array kGrid{Grid{2, 2, 2},   Grid{2, 4, 4},    Grid{2, 8, 2},  Grid{2, 8, 4},
                             Grid{2, 8, 8},   Grid{4, 4, 4},    Grid{4, 8, 4},  Grid{4, 8, 8},
                             Grid{4, 16, 4},  Grid{4, 32, 4},   Grid{4, 64, 4}, Grid{4, 16, 16},
                             Grid{4, 32, 32}, Grid{4, 128, 64}, Grid{3, 2, 2},  Grid{3, 8, 2},
                             Grid{3, 12, 4},  Grid{4, 6, 3},    Grid{4, 10, 5}, Grid{2, 3, 4},
                             Grid{2, 10, 4},  Grid{2, 15, 4}};
  for (const auto& [per_rank, micro_batches, ranks] : kGrid) {
    SCOPED_TRACE(concat("(", per_rank, ", ", micro_batches, ", ", ranks, ")"));
    for (const ScheduleKind kind : {kInterleaved, kZeroBubble}) {
      const Schedule schedule = make_schedule(kind, ranks, ranks * per_rank, micro_batches);
      EXPECT_NO_THROW(check_schedule(with_transfers(schedule)));
    }
  }
}

bool closed_form_is_reached(ScheduleKind kind, int ranks, int micro_batches) {
  return (kind != kInterleaved && kind != kZeroBubble) || micro_batches % ranks == 0;
}

TEST(ScheduleGrid, IdleShareIsTheClosedForm) {
  for_each_shape([](ScheduleKind kind, int ranks, int stages, int micro_batches) {
    const double simulated =
        simulate(make_schedule(kind, ranks, stages, micro_batches), {}).idle_share();
    const double closed = bubble_share(kind, ranks, stages, micro_batches);
    if (closed_form_is_reached(kind, ranks, micro_batches)) {
      EXPECT_NEAR(simulated, closed, 1e-12);
    } else {
      EXPECT_GE(simulated, closed - 1e-12);
    }
  });
}

TEST(ScheduleGrid, EveryFirstScheduleIdlesLessThanTheOneBefore) {
  const auto share = [](ScheduleKind kind, int stages) { return bubble_share(kind, 4, stages, 8); };
  EXPECT_DOUBLE_EQ(share(kSequential, 4), 3.0 / 4);
  EXPECT_DOUBLE_EQ(share(k1F1B, 4), 3.0 / 11);
  EXPECT_DOUBLE_EQ(share(kInterleaved, 8), 3.0 / 19);
  EXPECT_DOUBLE_EQ(share(kZeroBubble, 4), 3.0 / 27);
}

}  // namespace
}  // namespace lockstep
