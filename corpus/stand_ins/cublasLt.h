// Stands for cuBLASLt in programs that set it up and do not use it.
#pragma once
#include "cublas_v2.h"

typedef struct cublasLtContext *cublasLtHandle_t;

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *made) {
    *made = nullptr;
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
    return CUBLAS_STATUS_SUCCESS;
}
