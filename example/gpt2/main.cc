#include "example/common/model.h"
#include "example/gpt2/spec.h"

int main(int argc, char** argv) {
    return infini_train::RunProgram(argc, argv, infini_train::gpt2::MakeModel);
}
