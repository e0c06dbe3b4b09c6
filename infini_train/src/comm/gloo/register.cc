#include <memory>

#include "infini_train/src/comm/gloo/gloo_world.h"
#include "infini_train/src/comm/gloo_backend.h"

namespace infini_train::comm {
namespace {

std::shared_ptr<World> MakeWorld(const GlooWorldOptions& options) {
    return std::make_shared<GlooWorld>(options);
}

// Runs when the library is loaded, before main.
[[maybe_unused]] const bool registered = [] {
    gloo_backend = {.make_world = MakeWorld};
    return true;
}();

}  // namespace
}  // namespace infini_train::comm
