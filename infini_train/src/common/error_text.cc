#include "infini_train/include/common/error_text.h"

#include <new>
#include <system_error>

namespace infini_train {

std::string ErrorText(const std::exception& exception) {
    if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) {
        return "there is no more memory (std::bad_alloc)";
    }
    const auto* system = dynamic_cast<const std::system_error*>(&exception);
    if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {  // as std::thread throws it
        return "the system starts no more threads (see ulimit -u, and -v for their stacks)";
    }
    return exception.what();
}

}  // namespace infini_train
