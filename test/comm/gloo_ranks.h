#pragma once

#include <functional>
#include <string>
#include <vector>

#include "infini_train/include/comm/run_ranks.h"
#include "test/comm/processes.h"

namespace infini_train::comm {

/// How many processes a run has, and ranks each.
struct Layout {
    int num_processes = 2;
    int num_threads = 1;

    int num_ranks() const { return num_processes * num_threads; }
};

/// The processes of a run, as threads of this one; they share nothing but gloo's connections. The error of each, "" for
/// none.
inline std::vector<std::string> RunProcesses(const Layout& layout, const std::function<void(const Mesh&)>& rank_main,
                                             double timeout_s = kTimeoutS) {
    const int port = FreePort();
    return Together(layout.num_processes, [&](int index) {
        RunRanks({.shape = {.pipeline = layout.num_ranks()},
                  .process = Place(index, layout.num_processes, port),
                  .transport = Transport::kGloo,
                  .timeout_s = timeout_s},
                 rank_main);
    });
}

inline void ExpectNoErrors(const std::vector<std::string>& errors) {
    for (const std::string& error : errors) {
        EXPECT_EQ(error, "");
    }
}

}  // namespace infini_train::comm
