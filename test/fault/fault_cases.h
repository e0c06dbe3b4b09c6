#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace infini_train::test {

/// One fault of a run of four ranks. The phases and the kinds are those of docs/faults.md.
struct FaultCase {
    std::string phase;
    std::string kind;
    int rank = 0;
    int num_threads = 1;  // ranks of a process
};

/// "quarter_2_kill_3", and "_2x2" for two processes of two ranks
std::string NameOf(const FaultCase& fault);
/// How GoogleTest shows it.
void PrintTo(const FaultCase& fault, std::ostream* out);

/// Every phase with every kind, of the first rank, one in the middle and the last; ranks that hang and that return
/// early; and some with two ranks a process.
std::vector<FaultCase> AllFaultCases();

/// Runs it, and expects that it ends as docs/faults.md says. Prints a line of the table there.
void ExpectThatAllEnd(const FaultCase& fault);

}  // namespace infini_train::test
