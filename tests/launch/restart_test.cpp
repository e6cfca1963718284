#include "lockstep/launch/restart.h"

#include <gtest/gtest.h>
#include <ostream>
#include <signal.h>
#include <vector>

#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/patience.h"
#include "lockstep/launch/ranks/rank_attempt.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

using Step = std::optional<std::int64_t>;

AttemptEnd failed(const ExitStatus& status, Step step = {}, std::optional<int> signal = {}) {
  return {.code = status.result(), .failure = status, .signal = signal, .step = step};
}

AttemptEnd killed(Step step = {}) { return failed({.signal = SIGKILL}, step); }

/// The outcome of a run.
struct Outcome {
  int restarts;
  int code;
  std::string reason;
  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << outcome.restarts << " restarts, code " << outcome.code << ": " << outcome.reason;
}

/// Ends attempts as listed until none starts; attempts that were not needed are an error.
Outcome outcome(const RestartRules& rules, const std::vector<AttemptEnd>& attempts) {
  RestartHistory history;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    const NextAttempt next = next_attempt(rules, history, attempts[i]);
    if (!next.starts) {
      EXPECT_EQ(i + 1, attempts.size()) << "it ended too early: " << next.reason;
      return {history.restarts, next.code, next.reason};
    }
    EXPECT_EQ(next.history.restarts, history.restarts + 1);
    history = next.history;
  }
  return {history.restarts, -1, "another attempt starts"};
}

const AttemptEnd kDone{};
const RestartRules kThree{.most = 3};

TEST(Restart, FollowsAFailureAsOftenAsAllowed) {
  const std::string used = "restarts used up: --max-restarts 3";
  EXPECT_EQ(outcome({}, {killed()}), (Outcome{0, 137, ""}));
  EXPECT_EQ(outcome(kThree, {kDone}), (Outcome{0, 0, ""}));
  EXPECT_EQ(outcome(kThree, {killed(), kDone}), (Outcome{1, 0, ""}));
  EXPECT_EQ(
      outcome(kThree, {killed(), killed(), killed()}), (Outcome{3, -1, "another attempt starts"}));
  EXPECT_EQ(
      outcome(kThree, {killed(), killed(), killed(), failed({.code = 7})}), (Outcome{3, 7, used}));
}

TEST(Restart, IsNotGivenBackAfterProgress) {
  EXPECT_EQ(outcome(kThree, {killed(10), killed(20), killed(30), killed(40)}),
      (Outcome{3, 137, "restarts used up: --max-restarts 3"}));
}

TEST(Restart, EndsWithTheFirstCodeWhenNoStepIsGained) {
  const RestartRules many{.most = 1000};
  EXPECT_EQ(outcome(many, {killed(500), killed(500)}),
      (Outcome{1, 137, "no progress: died again at step 500, as before"}));
  EXPECT_EQ(outcome(many, {killed(0), failed({.code = 1}, 0)}),
      (Outcome{1, 137,
          "no progress: died again before its first step, as before; the exit code is that of the "
          "first failure: 137"}));
  EXPECT_EQ(
      outcome(many, {killed(100), failed({.signal = SIGSEGV}, 500), killed(460), killed(500)}),
      (Outcome{3, 139,
          "no progress: died again at step 500, as before; the exit code is that of the first "
          "failure: 139"}));
  EXPECT_EQ(outcome(many, {killed(100), failed({.code = 1}, 500), killed(500)}),
      (Outcome{2, 1,
          "no progress: died again at step 500, as before; the exit code is that of the first "
          "failure: 1"}));
}

TEST(Restart, OnlyCountsAnAttemptThatWasStruckBeforeItWasBackAtItsStep) {
  EXPECT_EQ(outcome(kThree, {killed(500), killed(450), killed(499), kDone}), (Outcome{3, 0, ""}));
  EXPECT_EQ(outcome({.most = 1}, {killed(500), killed(450)}),
      (Outcome{1, 137, "restarts used up: --max-restarts 1"}));
}

TEST(Restart, TakesAnAttemptThatReportedNothingForNoProgressOnceOthersDid) {
  EXPECT_EQ(outcome(kThree, {killed(500), killed()}),
      (Outcome{1, 137,
          "no progress: died before its first step, although an earlier attempt reached step "
          "500"}));
  EXPECT_EQ(outcome(kThree, {killed(), killed(0), killed(0)}),
      (Outcome{2, 137, "no progress: died again before its first step, as before"}));
}

TEST(Restart, NeedsACodeThatAnotherAttemptMayChange) {
  const RestartRules ours{.most = 3, .lockstep_codes = true};
  for (const int code : {2, 3, 4, 6, 75, 129, 130, 131, 143}) {
    const Outcome refused = outcome(ours, {failed({.code = code})});
    EXPECT_EQ(refused.code, code);
    EXPECT_NE(refused.reason, "");
    EXPECT_EQ(outcome(kThree, {failed({.code = code}), kDone}), (Outcome{1, 0, ""}))
        << "codes of other programs mean nothing to us";
  }
  for (const int code : {1, 5, 7, 127, 134, 137, 139}) {
    EXPECT_EQ(outcome(ours, {failed({.code = code}), kDone}), (Outcome{1, 0, ""})) << code;
  }
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    EXPECT_FALSE(is_worth_a_restart({.signal = signal})) << "somebody asked it to end";
  }
  for (const int signal : {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) {
    EXPECT_TRUE(is_worth_a_restart({.signal = signal})) << signal;
  }
}

TEST(Restart, IsCalledOffByASignalWhichThenGivesTheCode) {
  const auto struck = failed({.signal = SIGKILL}, {}, SIGTERM);
  EXPECT_EQ(outcome(kThree, {struck}), (Outcome{0, 143, "not restarted: SIGTERM"}));
  EXPECT_EQ(outcome({.most = 3, .lockstep_codes = true}, {struck}),
      (Outcome{0, 75, "not restarted: SIGTERM"}))
      << "what is saved is where the restart would have begun";
  EXPECT_EQ(outcome({}, {struck}), (Outcome{0, 137, ""})) << "nothing was called off";
  EXPECT_EQ(outcome({.most = 1}, {killed(), struck}).code, 137);
  const AttemptEnd stopped{.code = 75, .failure = {}, .signal = SIGTERM, .step = 9};
  EXPECT_EQ(outcome(kThree, {killed(5), stopped}), (Outcome{1, 75, ""}));
}

TEST(Restart, AttemptsThatFailSoonGetPausesBetweenThem) {
  std::vector<std::int64_t> pauses;
  RestartHistory history;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const NextAttempt next = next_attempt({.most = 100}, history, killed());
    history = next.history;
    pauses.push_back(next.pause.count());
  }
  EXPECT_EQ(pauses, (std::vector<std::int64_t>{0, 1, 2, 4, 8, 16, 32, 60, 60, 60}));

  AttemptEnd long_one = killed();
  long_one.seconds = 11;
  history = next_attempt({.most = 100}, history, long_one).history;
  EXPECT_EQ(next_attempt({.most = 100}, history, killed()).pause.count(), 0) << "it begins anew";
}

TEST(Restart, AttemptsThatGainStepsAreNoLoop) {
  RestartHistory history;
  for (int attempt = 1; attempt < 5; ++attempt) {
    const NextAttempt next = next_attempt({.most = 100}, history, killed(attempt));
    history = next.history;
    EXPECT_EQ(next.pause.count(), 0);
  }
}

// Who waits for somebody who waits himself has more patience than that one.

TEST(Patience, ContainsWhatItWaitsFor) {
  EXPECT_LE(patience::kForTheCause, patience::kTogether);
  EXPECT_LT(patience::kToNotice, patience::kToSave);
  for (const milliseconds grace : {milliseconds(0), milliseconds(30'000), milliseconds(600'000)}) {
    EXPECT_GE(patience::to_end(grace),
        patience::kForTheCause + patience::kToSave + patience::kToDie + patience::kLastOutput)
        << "after a failure";
    EXPECT_GE(patience::to_end(grace), grace + patience::kToDie + patience::kLastOutput)
        << "when asked";
    EXPECT_GE(patience::to_end(grace), patience::kToSave + grace) << "when asked while they save";
    EXPECT_GT(patience::for_a_launcher(grace), patience::to_end(grace));
  }
}

TEST(Patience, OfNodesContainsThatOfTheOthers) {
  for (const milliseconds dead_after : {milliseconds(100), RendezvousOptions().dead_after}) {
    EXPECT_GT(patience::for_a_successor(dead_after), dead_after)
        << "it may hear of the loss so much later";
    // The others may try one in vain for so long whom we could not reach at once.
    EXPECT_GT(patience::to_regather(dead_after, 0), patience::for_a_successor(dead_after));
    EXPECT_GT(patience::to_regather(dead_after, 2), 3 * patience::for_a_successor(dead_after));
    // They hear of the loss, serve, and ask, which may begin just before we can answer.
    EXPECT_GE(patience::to_found(dead_after),
        dead_after + 2 * (patience::kToAskAgain + patience::kToAskAgain));
  }
  EXPECT_LE(patience::to_found(RendezvousOptions().dead_after), RendezvousOptions().last_call);
}

using State = RescueState;

TEST(RescueWait, IsNothingForRanksThatHoldNothing) {
  EXPECT_FALSE(waits_for_rescue({}, milliseconds(0)));
  EXPECT_FALSE(waits_for_rescue({State::kNone, State::kNone}, milliseconds(0)));
}

TEST(RescueWait, GivesRanksTimeToNoticeTheFailure) {
  EXPECT_TRUE(waits_for_rescue({State::kNone, State::kPossible}, milliseconds(499)));
  EXPECT_FALSE(waits_for_rescue({State::kNone, State::kPossible}, milliseconds(500)));
}

TEST(RescueWait, LastsAsLongAsOneSavesButNotForever) {
  EXPECT_TRUE(waits_for_rescue({State::kPossible, State::kUnderWay}, milliseconds(59'999)));
  EXPECT_FALSE(waits_for_rescue({State::kPossible, State::kUnderWay}, milliseconds(60'000)));
}

TEST(RescueWait, EndsWithTheFirstThatHasSaved) {
  EXPECT_FALSE(waits_for_rescue({State::kDone, State::kPossible}, milliseconds(1)));
  EXPECT_FALSE(waits_for_rescue({State::kUnderWay, State::kDone}, milliseconds(1)));
}

}  // namespace
}  // namespace lockstep::launch
