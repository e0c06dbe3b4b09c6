#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace infini_train::comm {

/// When a wait for another rank is slow: once it has lasted min(30 s, timeout_s / 3), longer than most pipelines take
/// to fill, and 1 s at the least. It is told then, and again each time that it has lasted twice as long.
class SlowWait {
 public:
    using Clock = std::chrono::steady_clock;

    SlowWait(double timeout_s, Clock::time_point since);

    Clock::time_point since() const { return since_; }
    /// When it is to be told next.
    Clock::time_point due() const { return since_ + after_; }
    /// It has been told.
    void Told(Clock::time_point now);

 private:
    Clock::time_point since_;
    Clock::duration after_;
};

/// "[rank 1] has waited 30 s for TEXT"
std::string SlowWaitText(int rank, SlowWait::Clock::duration waited, const std::string& text);

/// A rank that waits.
struct Waiter {
    int rank = 0;
    SlowWait::Clock::time_point since = {};
    std::vector<int> awaited = {};  // the ranks that have to do something first
};

/// Whether this one of all waiters of a process is the one to tell, of all that stand still because of one rank: it
/// waits for that rank directly, and has done so longest. A rank of another process counts as one that does not wait.
bool Tells(const Waiter& own, const std::vector<Waiter>& all);

/// What a rank waits for.
struct Awaited {
    std::vector<int> ranks = {};
    std::string text = {};  // with their names, and hosts where known: "rank 1 in barrier of ranks 0, 1"
};

/// The ranks of this process that wait, each for one thing at a time. Thread-safe.
class WaitBoard {
 public:
    using Clock = SlowWait::Clock;

    explicit WaitBoard(double timeout_s) : timeout_s_(timeout_s) {}

    /// From its construction to its end.
    class Wait {
     public:
        Wait(WaitBoard* board, int rank, std::vector<int> awaited);
        ~Wait();
        Wait(const Wait&) = delete;
        Wait& operator=(const Wait&) = delete;

        Clock::time_point since() const { return slow_.since(); }
        /// When Warning wants to be called.
        Clock::time_point due() const { return slow_.due(); }
        /// From due() on, with what is waited for now: the line for the log, "[rank 1] has waited 30 s for ...; rank 2
        /// waits, too". Empty when another rank of this process tells.
        std::string Warning(Clock::time_point now, const Awaited& awaited);

     private:
        WaitBoard* board_;
        int rank_;
        SlowWait slow_;
    };

 private:
    double timeout_s_;
    std::mutex mutex_;
    std::vector<Waiter> waiters_;
};

}  // namespace infini_train::comm
