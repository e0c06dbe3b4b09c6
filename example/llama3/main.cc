#include "example/common/model.h"
#include "example/llama3/spec.h"

int main(int argc, char** argv) {
    return infini_train::RunProgram(argc, argv, infini_train::llama3::MakeModel);
}
