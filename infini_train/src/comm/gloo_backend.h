#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/comm/process_place.h"
#include "infini_train/src/comm/world.h"

namespace infini_train::comm {

struct GlooWorldOptions {
    ProcessPlace place = {};  // of this process; more than one process
    int num_ranks = 0;        // of all processes, each with as many
    double timeout_s = 0.0;   // of whatever waits for another rank
    std::vector<std::string> process_names = {};
    // Collective over the processes: the text of each. Throws Error.
    std::function<std::vector<std::string>(const std::string& text)> exchange_text = {};
};

/// How comm reaches gloo. Written before main by comm/gloo/register.cc, never again; null in a build without gloo.
struct GlooBackend {
    /// Collective over the processes.
    std::shared_ptr<World> (*make_world)(const GlooWorldOptions& options) = nullptr;
};
inline constinit GlooBackend gloo_backend = {};

}  // namespace infini_train::comm
