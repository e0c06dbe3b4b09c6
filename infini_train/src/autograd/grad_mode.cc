#include "infini_train/include/autograd/grad_mode.h"

namespace infini_train::autograd {
namespace {

thread_local bool grad_enabled = true;

}  // namespace

bool GradMode::is_enabled() {
    return grad_enabled;
}
void GradMode::set_enabled(bool enabled) {
    grad_enabled = enabled;
}

}  // namespace infini_train::autograd
